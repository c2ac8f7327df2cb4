/* The way for files without room inside: patchelf appends a segment, and what was behind the ELF part is kept. */
#ifndef CAPSULE_PATCHELF_H
#define CAPSULE_PATCHELF_H

#include "elf_edit.h"
#include "replace.h"

/*
 * Fills a replacement with the file `elf` (its source) that asks for `wish`. Appended data stays where it was in
 * the file, and is also at the file's end again: a program finds it by either. False: see the reason.
 */
bool patchelf_fill(struct replacement *replacement, const struct elf *elf, const struct wish *wish);

/* NULL, or why patchelf can't be asked for this file; known before anything is written. */
const char *patchelf_refusal(const struct elf *elf);

#endif
