/* Unit tests of what seal-tree reads and writes: words, first lines, ELF heads, holes, edits. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_edit.h"
#include "elf_space.h"
#include "script.h"
#include "split.h"

static unsigned passed, failed;

static void check(bool holds, const char *fact)
{
    if (holds) {
        passed++;
        return;
    }
    failed++;
    complain("FAILED", fact, NULL);
}

/* Words */

static bool splits_into(const char *string, const char *const *expected)
{
    struct words words;
    const char *reason;
    if (!split_words(string, &words, &reason))
        return false;
    size_t count = 0;
    bool same = true;
    for (; expected[count] != NULL && same; count++)
        same = count < words.count && strcmp(words.items[count], expected[count]) == 0;
    same = same && count == words.count;
    free_words(&words);
    return same;
}

static bool splitting_fails(const char *string, const char *expected)
{
    struct words words;
    const char *reason;
    return !split_words(string, &words, &reason) && strcmp(reason, expected) == 0;
}

static void test_words(void)
{
    check(splits_into("", (const char *[]){ NULL }), "an empty string has no words");
    check(splits_into("  a\t b\vc ", (const char *[]){ "a", "b", "c", NULL }), "blanks separate words");
    check(splits_into("'a b' \"c d\"e", (const char *[]){ "a b", "c de", NULL }), "quotes group");
    check(splits_into("'' \"\"", (const char *[]){ "", "", NULL }), "an empty word in quotes is one");
    check(splits_into("'a\\'b\\\\c\\n'", (const char *[]){ "a'b\\c\\n", NULL }),
          "single quotes know two escapes");
    check(splits_into("a\\_b \"c\\_d\"", (const char *[]){ "a", "b", "c d", NULL }),
          "an underscore escape separates outside quotes, and is a blank inside");
    check(splits_into("\\n\\t\\$\\#", (const char *[]){ "\n\t$#", NULL }), "escapes stand for bytes");
    check(splits_into("a #b c", (const char *[]){ "a", NULL }), "a comment ends the words");
    check(splits_into("a#b", (const char *[]){ "a#b", NULL }), "inside a word # is a byte");
    check(splitting_fails("'a", "it holds a quote that isn't closed"), "an open quote is refused");
    check(splitting_fails("a\\q", "it holds an escape that env doesn't know"), "an unknown escape is refused");
    check(splitting_fails("a\\", "it holds an escape that env doesn't know"), "an escape of nothing is refused");
    check(splitting_fails("${A}", "it uses an environment variable"), "a variable is refused");
}

/* First lines */

static const struct interpreters FULL = {
    .root = "/c",
    .node = "/c/bin/node",
    .python = "/c/bin/python3",
    .python_name = "python3.12",
    .bash = "/c/libexec/bash",
    .splitter = "/c/libexec/shebang-exec",
    .line_limit = 127,
};
static const struct interpreters EMPTY = { .root = "/c", .line_limit = 127 };

static bool is_examined(const char *text, const struct interpreters *known, enum script_verdict expected,
                        const char *head)
{
    struct script_result result = { 0 };
    enum script_verdict verdict = script_examine(text, strlen(text), true, "/folder", known, &result);
    bool same = verdict == expected;
    if (same && head != NULL)
        same = strcmp(verdict == SCRIPT_SEALED ? result.head.bytes : result.reason.bytes, head) == 0;
    script_free(&result);
    return same;
}

static void test_first_lines(void)
{
    check(is_examined("#", &FULL, SCRIPT_NOT, NULL), "one byte is no script");
    check(is_examined("", &FULL, SCRIPT_NOT, NULL), "an empty file is no script");
    check(is_examined("#!/usr/bin/env node\nx", &FULL, SCRIPT_SEALED, "#!/c/bin/node      "),
          "a shorter line is filled up with blanks");
    check(is_examined("#!/bin/bash -eu\n", &FULL, SCRIPT_SEALED, "#!/c/libexec/bash -eu"),
          "an argument is kept");
    check(is_examined("#!/usr/bin/python3 -s -E\n", &FULL, SCRIPT_SEALED, "#!/c/bin/python3 -s -E  "),
          "what the kernel passes as one argument stays one");
    check(is_examined("#!/usr/bin/env -S python3 -s -E\n", &FULL, SCRIPT_SEALED,
                      "#!/c/libexec/shebang-exec /c/bin/python3 -s -E"),
          "several arguments are split by shebang-exec");
    check(is_examined("#!/usr/bin/env -S A='x y' node\n", &FULL, SCRIPT_SEALED,
                      "#!/c/libexec/shebang-exec \"A=x y\" /c/bin/node"),
          "a word with a blank is quoted");
    check(is_examined("#!/c/bin/node\n", &FULL, SCRIPT_GOOD, NULL), "the capsule's own stays");
    check(is_examined("#!/usr/bin/env node\n", &EMPTY, SCRIPT_LEFT,
                      "it asks for Node.js, which this capsule doesn't have"),
          "a capsule without Node says so");
    check(is_examined("#!/usr/bin/python3.9\n", &FULL, SCRIPT_LEFT,
                      "it asks for python3.9, which this capsule doesn't have"),
          "another minor version says so");
    check(is_examined("#!/bin/sh\n'''exec' /usr/bin/python3 \"$0\" \"$@\"\n' '''\n", &FULL, SCRIPT_SEALED,
                      "#!/c/libexec/bash\n'''exec' '/c/bin/python3' \"$0\" \"$@\""),
          "a trampoline is sealed on both lines");
    check(is_examined("#!/bin/sh\n'''exec' $HOME/python3 \"$0\" \"$@\"\n' '''\n", &FULL, SCRIPT_GOOD, NULL),
          "a trampoline with an expansion stays");
    check(is_examined("#!/bin/sh\n'''exec' /usr/bin/python3 \"$0\"\n' '''\n", &FULL, SCRIPT_GOOD, NULL),
          "a trampoline with other arguments stays");
    check(script_line_limit() == 127 || script_line_limit() == 255, "the kernel's limit is one of two");
}

/* ELF */

static void test_input(void)
{
    static const char BYTES[] = "abc\0def";
    char to[8];
    struct input input;
    input_from_memory(&input, BYTES, 7);
    check(input_read(&input, 0, to, 7) && memcmp(to, BYTES, 7) == 0, "all bytes can be read");
    check(input_read(&input, 7, to, 0), "no bytes can be read at the end");
    check(!input_read(&input, 8, to, 0), "nothing can be read behind the end");
    check(!input_read(&input, 1, to, 7), "a read past the end fails");
    check(!input_read(&input, UINT64_MAX, to, 1) && !input_read(&input, UINT64_MAX - 3, to, 8),
          "an offset that wraps fails");
    check(input_read_string(&input, 0, 7, to, sizeof to) && strcmp(to, "abc") == 0, "a string ends at its NUL");
    check(!input_read_string(&input, 4, 7, to, sizeof to), "a string without NUL fails");
    check(!input_read_string(&input, 0, 3, to, sizeof to), "a string must end before its limit");
    check(!input_read_string(&input, 0, 7, to, 3), "a string must fit");
}

/* A small program: a page of code with an interpreter, a page of data with a dynamic section and a .bss. */
struct image {
    Elf64_Ehdr header;
    Elf64_Phdr programs[5];
    char interpreter[28];
    char strings[64];
    char code[300];
    char gap[3500];
    Elf64_Dyn entries[6];
    char data[32];
    Elf64_Shdr sections[5];
    char tail[16];
};

static void make_image(struct image *image)
{
    memset(image, 0, sizeof *image);
    memcpy(image->interpreter, "/lib64/ld-linux-x86-64.so.2", 28);
    memcpy(image->strings, "\0libc.so.6\0$ORIGIN/../lib", 26);
    memset(image->code, 0x90, sizeof image->code);
    memset(image->data, 0x11, sizeof image->data);
    memcpy(image->tail, "appended trailer", 16);
    const uint64_t base = 0x400000, text_end = offsetof(struct image, gap), data = offsetof(struct image, entries);
    image->programs[0] = (Elf64_Phdr){ PT_INTERP, PF_R, offsetof(struct image, interpreter),
                                       base + offsetof(struct image, interpreter), 0, 28, 28, 1 };
    image->programs[1] = (Elf64_Phdr){ PT_LOAD, PF_R | PF_X, 0, base, base, text_end, text_end, 4096 };
    image->programs[2] = (Elf64_Phdr){ PT_LOAD, PF_R | PF_W, data, base + 0x10000 + data, 0,
                                       sizeof image->entries + sizeof image->data, 4096, 4096 };
    image->programs[3] = (Elf64_Phdr){ PT_DYNAMIC, PF_R | PF_W, data, base + 0x10000 + data, 0,
                                       sizeof image->entries, sizeof image->entries, 8 };
    image->programs[4] = (Elf64_Phdr){ .p_type = PT_GNU_STACK };
    image->entries[0] = (Elf64_Dyn){ DT_NEEDED, { 1 } };
    image->entries[1] = (Elf64_Dyn){ DT_STRTAB, { base + offsetof(struct image, strings) } };
    image->entries[2] = (Elf64_Dyn){ DT_STRSZ, { sizeof image->strings } };
    image->entries[3] = (Elf64_Dyn){ DT_DEBUG, { 0 } };
    image->sections[1] = (Elf64_Shdr){ .sh_type = SHT_STRTAB, .sh_flags = SHF_ALLOC,
                                       .sh_offset = offsetof(struct image, strings), .sh_size = 64 };
    image->sections[2] = (Elf64_Shdr){ .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC,
                                       .sh_offset = offsetof(struct image, code), .sh_size = 300 };
    image->sections[3] = (Elf64_Shdr){ .sh_type = SHT_PROGBITS, .sh_flags = SHF_ALLOC | SHF_WRITE, .sh_offset = data,
                                       .sh_size = sizeof image->entries + sizeof image->data, .sh_addralign = 8 };
    image->sections[4] = (Elf64_Shdr){ .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_WRITE,
                                       .sh_addr = base + 0x10000 + data + sizeof image->entries + sizeof image->data,
                                       .sh_size = 100 };
    memcpy(image->header.e_ident, ELFMAG "\2\1\1", 7);
    image->header.e_type = ET_EXEC;
#ifdef __x86_64__
    image->header.e_machine = EM_X86_64;
#else
    image->header.e_machine = EM_AARCH64;
#endif
    image->header.e_phoff = offsetof(struct image, programs);
    image->header.e_phentsize = sizeof(Elf64_Phdr);
    image->header.e_phnum = 5;
    image->header.e_shoff = offsetof(struct image, sections);
    image->header.e_shentsize = sizeof(Elf64_Shdr);
    image->header.e_shnum = 5;
}

static const char *open_image(struct elf *elf, struct input *input, const struct image *image)
{
    input_from_memory(input, image, sizeof *image);
    return elf_open(elf, input);
}

static bool image_fails(const struct image *image, const char *expected)
{
    struct input input;
    struct elf elf;
    const char *reason = open_image(&elf, &input, image);
    elf_close(&elf);
    return reason != NULL && strstr(reason, expected) != NULL;
}

static void test_elf_reader(void)
{
    struct image image;
    struct input input;
    struct elf elf;
    const char *reason;
    char string[ELF_STRING];
    make_image(&image);
    check(open_image(&elf, &input, &image) == NULL, "a small program is read");
    check(elf_kind(&elf, &reason) == ELF_PROGRAM && elf_abi(&elf) == ABI_GLIBC, "it is a glibc program");
    check(elf_needs(&elf, "libc.so.6") && !elf_needs(&elf, "libc.so"), "its library's name is read");
    check(elf.end == offsetof(struct image, tail), "what is behind the section headers is appended");
    check(elf.entry_count == 5 && elf.entry_room == 6, "the dynamic section ends at its DT_NULL");
    elf.entries[0].d_un.d_val = UINT64_MAX - elf.strings;
    check(!elf_string(&elf, 0, string), "a string at an address that wraps is none");
    elf_close(&elf);

    for (size_t length = 0; length < sizeof image; length += length < 400 ? 1 : 97) {
        void *cut = must_allocate(length + 1);
        memcpy(cut, &image, length);
        input_from_memory(&input, cut, length);
        reason = elf_open(&elf, &input);
        check(reason != NULL || length >= offsetof(struct image, sections), "a truncated file is refused");
        elf_close(&elf);
        free(cut);
    }
    image.programs[0].p_filesz = 27;
    check(image_fails(&image, "interpreter's path"), "a path without NUL is refused");
    make_image(&image);
    image.programs[3].p_vaddr += 8;
    check(image_fails(&image, "dynamic section"), "a dynamic section at two places is refused");
    make_image(&image);
    image.entries[4].d_tag = image.entries[5].d_tag = DT_DEBUG;
    check(image_fails(&image, "dynamic section"), "a dynamic section without an end is refused");
    make_image(&image);
    image.programs[1].p_filesz = UINT64_MAX;
    check(image_fails(&image, "truncated"), "a segment that wraps is refused");
    make_image(&image);
    image.header.e_shoff = UINT64_MAX - 8;
    check(open_image(&elf, &input, &image) == NULL && elf.sections == NULL, "section headers may be nonsense");
    elf_close(&elf);
}

static void test_holes(void)
{
    struct image image;
    struct input input;
    struct elf elf;
    struct holes holes;
    struct hole hole;
    make_image(&image);
    open_image(&elf, &input, &image);
    holes_find(&elf, &holes);
    uint64_t gap = offsetof(struct image, gap), begin = gap;
    check(holes.count == 1 && holes.items[0].offset == begin && holes.items[0].grows == 1,
          "the rest of the page behind the code is a hole, and memory behind the data is none");
    check(holes.items[0].size <= sizeof image.gap && (holes.items[0].address + holes.items[0].size) % 8 == 0,
          "a hole ends where the data begins, or the page");
    check(holes_take(&holes, 100, &hole) && hole.offset == begin && holes_take(&holes, 100, &hole) &&
              hole.offset == begin + 100,
          "what is taken is gone");
    check(!holes_take(&holes, 5000, &hole), "more than there is can't be taken");
    holes_free(&holes);
    elf_close(&elf);

    image.gap[5] = 1;
    open_image(&elf, &input, &image);
    holes_find(&elf, &holes);
    check(holes.count == 0, "bytes that aren't zero are no hole");
    holes_free(&holes);
    elf_close(&elf);
}

static void test_edits(void)
{
    struct image image;
    struct input input;
    struct elf elf, after;
    struct edits edits;
    const struct wish wish = { .interpreter = "/c/abi/glibc/ld-linux-x86-64.so.2", .rpath = "/c/abi/glibc" };
    make_image(&image);
    open_image(&elf, &input, &image);
    check(elf_plan(&elf, &wish, &edits), "a program with room can be sealed in place");
    struct image sealed = image;
    for (size_t i = 0; i < edits.count; i++)
        memcpy((char *)&sealed + edits.items[i].offset, edits.items[i].bytes.bytes, edits.items[i].bytes.length);
    edits_free(&edits);
    elf_close(&elf);
    check(open_image(&after, &input, &sealed) == NULL && elf_fulfils(&after, &wish), "it then asks for what it should");
    check(memcmp(sealed.code, image.code, sizeof image.code) == 0 &&
              memcmp(sealed.data, image.data, sizeof image.data) == 0 &&
              memcmp(sealed.sections, image.sections, sizeof image.sections) == 0 &&
              memcmp(sealed.tail, image.tail, sizeof image.tail) == 0,
          "code, data, section headers and what is appended stay");
    check(elf_find(&after, DT_DEBUG, 0) >= 0, "a spare entry at the end is taken first");
    elf_close(&after);

    /* Both kinds of run path: one is left. */
    image.entries[3] = (Elf64_Dyn){ DT_RPATH, { 11 } };
    image.entries[4] = (Elf64_Dyn){ DT_RUNPATH, { 11 } };
    open_image(&elf, &input, &image);
    check(elf_plan(&elf, &wish, &edits), "a program with two run paths can be sealed");
    sealed = image;
    for (size_t i = 0; i < edits.count; i++)
        memcpy((char *)&sealed + edits.items[i].offset, edits.items[i].bytes.bytes, edits.items[i].bytes.length);
    edits_free(&edits);
    elf_close(&elf);
    check(open_image(&after, &input, &sealed) == NULL && elf_fulfils(&after, &wish), "one DT_RPATH is left of two");
    elf_close(&after);
}

int main(void)
{
    test_words();
    test_first_lines();
    test_input();
    test_elf_reader();
    test_holes();
    test_edits();
    struct text line = { 0 };
    text_add_number(&line, passed);
    text_add_string(&line, " passed, ");
    text_add_number(&line, failed);
    text_add_string(&line, " failed\n");
    write_all(STDOUT_FILENO, line.bytes, line.length);
    text_free(&line);
    return failed > 0;
}
