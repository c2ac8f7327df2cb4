#include "loader.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "version.h"

#if defined(__x86_64__)
#define GLIBC_LOADER "ld-linux-x86-64.so.2"
#define MUSL_LOADER "ld-musl-x86_64.so.1"
#else
#define GLIBC_LOADER "ld-linux-aarch64.so.1"
#define MUSL_LOADER "ld-musl-aarch64.so.1"
#endif

/* A loader lists a program in about a millisecond. */
enum { SECONDS = 10 };

const struct closure *closure_of(enum abi abi)
{
    static const struct closure GLIBC = { CAPSULE_ROOT "/abi/glibc/" GLIBC_LOADER, CAPSULE_ROOT "/abi/glibc" };
    static const struct closure MUSL = { CAPSULE_ROOT "/abi/musl/" MUSL_LOADER, CAPSULE_ROOT "/abi/musl" };
    return abi == ABI_GLIBC ? &GLIBC : abi == ABI_MUSL ? &MUSL : NULL;
}

bool closure_has(enum abi abi, const char *name)
{
    const struct closure *closure = closure_of(abi);
    if (closure == NULL || strchr(name, '/') != NULL)
        return false;
    char *path = join(closure->folder, "/", name, NULL);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

/* glibc's loader has symbol versions and says its name; musl's, which is its whole C library, has neither. */
static bool is_loader_of(const struct elf *loader, enum abi abi)
{
    char name[ELF_STRING] = "";
    int soname = elf_find(loader, DT_SONAME, 0);
    if (soname >= 0)
        elf_string(loader, (size_t)soname, name);
    bool glibc = starts_with(name, "ld-linux") && elf_find(loader, DT_VERDEF, 0) >= 0;
    return glibc == (abi == ABI_GLIBC);
}

/* NULL, or why this file can't be asked. */
static const char *check_loader(const char *path, enum abi abi)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return " isn't here";
    const char *reason = NULL;
    struct input input;
    struct elf elf;
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || access(path, X_OK) != 0 ||
        !input_from_file(&input, fd, (uint64_t)info.st_size)) {
        reason = " can't be run";
    } else {
        if (elf_open(&elf, &input) != NULL)
            reason = " is no loader for this machine";
        else if (!is_loader_of(&elf, abi))
            reason = " belongs to another C library";
        elf_close(&elf);
    }
    close(fd);
    return reason;
}

static void add_library(struct answer *answer, const char *path, size_t length)
{
    answer->libraries = must_grow(answer->libraries, (answer->library_count + 1) * sizeof *answer->libraries);
    answer->libraries[answer->library_count++] = must_duplicate(path, length);
}

/* Reads `\tNAME => PATH (0x...)` and `\tPATH (0x...)`, which both loaders print. */
static void read_list(struct answer *answer, const struct text *output)
{
    const char *line = output->bytes;
    while (line != NULL && *line != '\0') {
        const char *end = strchr(line, '\n');
        size_t length = end == NULL ? strlen(line) : (size_t)(end - line);
        char *copy = must_duplicate(line, length);
        char *arrow = strstr(copy, " => ");
        char *path = arrow == NULL ? copy + strspn(copy, "\t ") : arrow + 4;
        char *address = strstr(path, " (0x");
        if (path[0] == '/' && address != NULL)
            add_library(answer, path, (size_t)(address - path));
        free(copy);
        line = end == NULL ? NULL : end + 1;
    }
}

/* A line of the loader's that tells what is missing, for the report. */
static void add_complaint(struct text *reason, const struct child *child)
{
    const struct text *said = child->errors.length > 0 ? &child->errors : &child->output;
    const char *line = said->length == 0 ? "" : said->bytes;
    const char *missing = strstr(line, "not found");
    if (missing != NULL)
        while (missing > line && missing[-1] != '\n')
            missing--;
    line = missing != NULL ? missing : line;
    line += strspn(line, "\t ");
    text_add(reason, line, strcspn(line, "\n"));
}

/* glibc's loader lists a program with exit status 0 though a symbol version, or a library, is missing. */
static bool has_missing_version(const struct text *errors)
{
    return errors->length > 0 && strstr(errors->bytes, "version") != NULL &&
           strstr(errors->bytes, "not found") != NULL;
}

static void ask(struct answer *answer, const char *const *argv)
{
    struct child child;
    child_run(&child, argv, -1, SECONDS);
    answer->loadable = child.end == CHILD_ENDED && child.status == 0 && !has_missing_version(&child.errors) &&
                       (child.output.length == 0 || strstr(child.output.bytes, "=> not found") == NULL);
    if (answer->loadable)
        read_list(answer, &child.output);
    else if (child.end == CHILD_TOO_LONG)
        text_add_strings(&answer->reason, argv[0], " didn't answer in time", NULL);
    else if (child.end == CHILD_NOT_STARTED)
        text_add_strings(&answer->reason, argv[0], " can't be run", NULL);
    else
        add_complaint(&answer->reason, &child);
    child_free(&child);
}

void loader_ask(const char *loader, enum abi abi, const char *program, struct answer *answer)
{
    *answer = (struct answer){ 0 };
    const char *refusal = check_loader(loader, abi);
    if (refusal != NULL) {
        text_add_strings(&answer->reason, "its loader ", loader, refusal, NULL);
        return;
    }
    ask(answer, (const char *const[]){ loader, "--list", program, NULL });
}

void loader_ask_private(enum abi abi, const char *program, struct answer *answer)
{
    const struct closure *closure = closure_of(abi);
    *answer = (struct answer){ 0 };
    ask(answer, (const char *const[]){ closure->loader, "--library-path", closure->folder, "--list", program, NULL });
}

void answer_free(struct answer *answer)
{
    for (size_t i = 0; i < answer->library_count; i++)
        free(answer->libraries[i]);
    free(answer->libraries);
    text_free(&answer->reason);
    *answer = (struct answer){ 0 };
}
