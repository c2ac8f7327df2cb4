#include "preload.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf_file.h"
#include "text.h"
#include "version.h"

/* Both loaders take either for a separator. */
#define SEPARATORS " :"

static enum abi abi_of_tools(void)
{
    return ends_with(CAPSULE_ROOT, "-musl") ? ABI_MUSL : ABI_GLIBC;
}

/* The C library that a file needs; ABI_NONE also for what isn't a library, which loaders ignore. */
static enum abi abi_of_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return ABI_NONE;
    enum abi abi = ABI_NONE;
    struct input input;
    struct elf elf;
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && input_from_file(&input, fd, (uint64_t)info.st_size)) {
        if (elf_open(&elf, &input) == NULL)
            abi = elf_abi(&elf);
        elf_close(&elf);
    }
    close(fd);
    return abi;
}

void leave_out_foreign_preloads(const char *program)
{
    const char *rest = getenv("LD_PRELOAD");
    if (rest == NULL)
        return;
    enum abi other = abi_of_tools() == ABI_MUSL ? ABI_GLIBC : ABI_MUSL;
    bool changed = false;
    struct text kept = { 0 };
    while (*(rest += strspn(rest, SEPARATORS)) != '\0') {
        size_t length = strcspn(rest, SEPARATORS);
        char *path = must_duplicate(rest, length);
        rest += length;
        if (strchr(path, '/') != NULL && abi_of_file(path) == other) {
            complain(program, "LD_PRELOAD names ", path, ", which is made for ", other == ABI_MUSL ? "musl" : "glibc",
                     ": the capsule's programs can't load it, so it is left out", NULL);
            changed = true;
        } else {
            text_add_strings(&kept, kept.length == 0 ? "" : ":", path, NULL);
        }
        free(path);
    }
    if (changed && kept.length == 0)
        unsetenv("LD_PRELOAD");
    else if (changed)
        setenv("LD_PRELOAD", kept.bytes, 1);
    text_free(&kept);
}
