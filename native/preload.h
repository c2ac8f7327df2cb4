/* LD_PRELOAD, where it names libraries that the capsule's programs can't load. */
#ifndef CAPSULE_PRELOAD_H
#define CAPSULE_PRELOAD_H

/*
 * Takes libraries that are made for another C library than the capsule's tools out of LD_PRELOAD, and says so: with one
 * of them a loader ends any program before it begins, with words that don't name the variable.
 */
void leave_out_foreign_preloads(const char *program);

#endif
