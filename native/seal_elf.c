#include "sealer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "elf_edit.h"
#include "loader.h"
#include "patchelf.h"
#include "wishes.h"

/* What is decided about a program or a library. */
enum decision { UNDECIDED, LEAVE, SEAL };

struct elf_item {
    struct item item;
    enum abi abi;
    bool program;
    char *loader; /* of a program: what it asks for */
    enum decision decision;
    char *reason; /* for LEAVE */
};

struct elf_files {
    struct elf_item *entries;
    size_t count;
    size_t room;
};

static void skip(struct sealer *sealer, const char *path, const char *reason)
{
    report_add(&sealer->report, REPORT_SKIPPED, path, reason);
}

static void add_file(struct sealer *sealer, const struct candidate *candidate, char **links, const struct elf *elf,
                     bool program)
{
    if (sealer->elf == NULL)
        sealer->elf = must_allocate(sizeof *sealer->elf);
    struct elf_files *files = sealer->elf;
    if (files->count == files->room) {
        files->room = 2 * files->room + 16;
        files->entries = must_grow(files->entries, files->room * sizeof *files->entries);
    }
    struct elf_item *file = &files->entries[files->count++];
    *file = (struct elf_item){
        .item = { .path = must_duplicate(candidate->path, strlen(candidate->path)), .info = candidate->info },
        .abi = elf_abi(elf),
        .program = program,
    };
    if (program)
        file->loader = must_duplicate(elf->interpreter_path, strlen(elf->interpreter_path));
    size_t count = 0;
    while (links != NULL && links[count] != NULL)
        count++;
    if (count > 0) {
        file->item.links = must_allocate((count + 1) * sizeof *links);
        memcpy(file->item.links, links, count * sizeof *links);
    }
}

void note_elf_file(struct sealer *sealer, const struct candidate *candidate, char **links)
{
    struct elf elf;
    const char *reason = elf_open(&elf, candidate->input);
    enum elf_kind kind = reason == NULL ? elf_kind(&elf, &reason) : ELF_LEFT;
    if (kind == ELF_LEFT) {
        skip(sealer, candidate->path, reason);
    } else if (elf_abi(&elf) == ABI_OTHER) {
        char *other = join("it asks for the loader ", elf.interpreter_path, ", which is neither glibc's nor musl's", NULL);
        skip(sealer, candidate->path, other);
        free(other);
    } else if (elf_abi(&elf) == ABI_NONE) {
        skip(sealer, candidate->path, "it names no C library, so it needs none of the capsule's libraries");
    } else {
        add_file(sealer, candidate, links, &elf, kind == ELF_PROGRAM);
    }
    elf_close(&elf);
}

static void decide(struct elf_item *file, enum decision decision, char *reason)
{
    free(file->reason);
    file->decision = decision;
    file->reason = reason;
}

/* One process, one libc: a library that a program on the image's own C library loads must not bring ours in. */
static void leave_library(struct elf_files *files, const char *library, const char *program)
{
    struct stat info;
    if (stat(library, &info) != 0)
        return;
    for (size_t i = 0; i < files->count; i++) {
        struct elf_item *file = &files->entries[i];
        if (!file->program && file->item.info.st_dev == info.st_dev && file->item.info.st_ino == info.st_ino)
            decide(file, LEAVE, join("it is loaded by a program that runs on the image's own C library: ", program, NULL));
    }
}

/* Asks about a program; what it loads is left alone with it. */
static void ask_about(struct sealer *sealer, struct elf_item *program)
{
    struct answer image, private;
    const struct closure *closure = closure_of(program->abi);
    if (strcmp(program->loader, closure->loader) == 0) {
        sealer->report.sealed++;
        decide(program, LEAVE, NULL);
        return;
    }
    char *path = absolute_path(sealer, program->item.path);
    loader_ask(program->loader, program->abi, path, &image);
    if (image.loadable) {
        decide(program, LEAVE, join("the image's own loader can load it", NULL));
        for (size_t i = 0; i < image.library_count; i++)
            leave_library(sealer->elf, image.libraries[i], program->item.path);
    } else {
        loader_ask_private(program->abi, path, &private);
        if (private.loadable)
            decide(program, SEAL, NULL);
        else
            decide(program, LEAVE, join("neither the image nor the capsule has all that it loads: ",
                                        private.reason.length > 0 ? private.reason.bytes : "no reason given", NULL));
        answer_free(&private);
    }
    answer_free(&image);
    free(path);
}

/* Whether a file lies in the folder of a program, or below it. */
static bool is_beside(const char *path, const char *program)
{
    const char *slash = strrchr(program, '/');
    size_t length = slash == NULL ? 0 : (size_t)(slash - program + 1);
    return length > 0 && strncmp(path, program, length) == 0;
}

/*
 * A library that no loader listed may still be loaded later, by dlopen. Beside a program that is left alone, and
 * beside none that is sealed, it is taken for such a one. An addon is for the capsule's Node.
 */
static void decide_by_neighbours(const struct elf_files *files, struct elf_item *library)
{
    const char *left = NULL;
    if (ends_with(library->item.path, ".node"))
        return;
    for (size_t i = 0; i < files->count; i++) {
        const struct elf_item *program = &files->entries[i];
        if (!program->program || program->abi != library->abi || !is_beside(library->item.path, program->item.path))
            continue;
        if (program->decision == SEAL || program->reason == NULL)
            return;
        left = program->item.path;
    }
    if (left != NULL)
        decide(library, LEAVE, join("it lies beside a program that runs on the image's own C library: ", left, NULL));
}

/* Whether the private loader takes the program as it would be: asked about the temporary file. */
static bool check_program(struct sealer *sealer, const struct elf_item *file, struct replacement *replacement)
{
    struct answer answer;
    char *path = absolute_path(sealer, file->item.path);
    *(strrchr(path, '/') + 1) = '\0';
    char *temporary = join(path, replacement->temporary, NULL);
    loader_ask_private(file->abi, temporary, &answer);
    bool good = answer.loadable;
    if (!good) {
        text_cut(&replacement->reason, 0);
        text_add_strings(&replacement->reason, "sealed, it can't be loaded: ",
                         answer.reason.length > 0 ? answer.reason.bytes : "no reason given", NULL);
    }
    answer_free(&answer);
    free(temporary);
    free(path);
    return good;
}

/* Reads the new content again: it must be what was wished for. */
static bool check_content(struct replacement *replacement, const struct wish *wish)
{
    struct stat info;
    struct input input;
    struct elf elf;
    if (fstat(replacement->target, &info) != 0 || !input_from_file(&input, replacement->target, (uint64_t)info.st_size))
        return replace_fail(replacement, "its new content can't be read");
    bool good = elf_open(&elf, &input) == NULL && elf_fulfils(&elf, wish);
    elf_close(&elf);
    if (!good)
        text_add_string(&replacement->reason, "sealed, it would not ask for what it should");
    return good;
}

static bool fill(struct replacement *replacement, const struct elf *elf, const struct wish *wish)
{
    struct edits edits;
    if (!elf_plan(elf, wish, &edits))
        return patchelf_fill(replacement, elf, wish);
    bool good = replace_copy(replacement, 0, TO_THE_END) &&
                (edits_apply(&edits, replacement->target) ||
                 replace_fail(replacement, "its new content can't be written"));
    edits_free(&edits);
    return good;
}

/* What is known without writing: whether the file has room, or patchelf can be asked. */
static bool could_rewrite(struct sealer *sealer, const struct elf_item *file, const struct elf *elf,
                          const struct wish *wish)
{
    struct edits edits;
    const char *refusal = elf_plan(elf, wish, &edits) ? NULL : patchelf_refusal(elf);
    edits_free(&edits);
    if (refusal != NULL)
        report_add(&sealer->report, REPORT_FAILURES, file->item.path, refusal);
    return refusal == NULL;
}

static bool rewrite(struct sealer *sealer, const struct elf_item *file, const struct elf *elf, const struct wish *wish)
{
    if (sealer->tree.dry_run)
        return could_rewrite(sealer, file, elf, wish);
    struct replacement replacement;
    bool good = replace_begin(&replacement, sealer->tree.root, file->item.path, &file->item.info) &&
                fill(&replacement, elf, wish) && check_content(&replacement, wish) &&
                (!file->program || check_program(sealer, file, &replacement)) &&
                replace_commit(&replacement, sealer->tree.root, file->item.links);
    if (!good)
        report_add(&sealer->report, REPORT_FAILURES, file->item.path, replacement.reason.bytes);
    replace_end(&replacement);
    return good;
}

static void seal_file(struct sealer *sealer, const struct elf_item *file)
{
    struct input input;
    struct elf elf;
    int fd = tree_open(&sealer->tree, file->item.path, &file->item.info, &input);
    if (fd < 0) {
        report_add(&sealer->report, REPORT_FAILURES, file->item.path, "it was changed while it was being sealed");
        return;
    }
    const char *reason = elf_open(&elf, &input);
    struct wish wish = { 0 };
    char *rpath = NULL;
    char *path = absolute_path(sealer, file->item.path);
    if (reason != NULL) {
        report_add(&sealer->report, REPORT_FAILURES, file->item.path, "it was changed while it was being sealed");
    } else {
        reason = wish_for(&elf, path, file->program, &wish, &rpath);
        if (reason != NULL)
            skip(sealer, file->item.path, reason);
        else if (wish_is_empty(&wish))
            sealer->report.sealed++;
        else if (rewrite(sealer, file, &elf, &wish)) {
            if (wish.interpreter != NULL)
                report_add(&sealer->report, REPORT_INTERPRETERS, file->item.path, NULL);
            if (wish.rpath != NULL || wish.needed_count > 0)
                report_add(&sealer->report, REPORT_RPATHS, file->item.path, NULL);
        }
    }
    wish_free(&wish);
    free(rpath);
    free(path);
    elf_close(&elf);
    close(fd);
}

static void seal_all(struct sealer *sealer, bool programs)
{
    for (size_t i = 0; i < sealer->elf->count; i++) {
        struct elf_item *file = &sealer->elf->entries[i];
        if (file->program != programs)
            continue;
        if (file->decision != LEAVE)
            seal_file(sealer, file);
        else if (file->reason != NULL)
            skip(sealer, file->item.path, file->reason);
    }
}

void seal_elf_files(struct sealer *sealer)
{
    struct elf_files *files = sealer->elf;
    if (files == NULL)
        return;
    for (size_t i = 0; i < files->count; i++)
        if (files->entries[i].program)
            ask_about(sealer, &files->entries[i]);
    for (size_t i = 0; i < files->count; i++)
        if (!files->entries[i].program && files->entries[i].decision == UNDECIDED)
            decide_by_neighbours(files, &files->entries[i]);
    /* Libraries first: a program is tried with them before it takes its name. */
    seal_all(sealer, false);
    seal_all(sealer, true);
    for (size_t i = 0; i < files->count; i++) {
        item_free(&files->entries[i].item);
        free(files->entries[i].loader);
        free(files->entries[i].reason);
    }
    free(files->entries);
    free(files);
    sealer->elf = NULL;
}
