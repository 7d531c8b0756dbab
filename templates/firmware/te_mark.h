/* te_mark.h: included before the model's sources in a measuring build, which also defines
 * NAME_AFTER_NODE(ctx, node) as te_mark(node + 1). */
#ifndef TE_MARK_H_
#define TE_MARK_H_

#include <stdint.h>

void te_mark(uint32_t id);

#endif /* TE_MARK_H_ */
