/*
 * Makes the same guest of the same sources, wherever and whenever it is made.
 *
 * The snapshot of the guest's memory holds what its Python has seen of the machine while it started: random
 * bytes (the seed of its hashes), times of files, the order of a folder's entries, the clock, also where all
 * of that is long freed. Loaded into componentize-py with LD_PRELOAD, this shows it a machine where they are
 * always the same:
 *
 *   getrandom, clock_gettime   replaced, since they are called as functions
 *   statx, getdents64          caught by a seccomp filter, since Rust's rustix makes the system calls itself
 *
 * A task draws its own random bytes when it runs; see capsule_guest.py.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARGUMENT(context, n) \
    ((context)->uc_mcontext.gregs[(const int[]){REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8}[n]])
#define RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__)
#define ARGUMENT(context, n) ((context)->uc_mcontext.regs[n])
#define RESULT(context) ((context)->uc_mcontext.regs[0])
#else
#error "the registers of a system call on this processor aren't known here"
#endif

enum {
    /* 1980-01-01, the first day that a ZIP file can hold. */
    NOW = 315532800,
    /* Of all entries of one folder, and how many of them. */
    LISTING_BYTES = 1 << 20,
    LISTING_ENTRIES = 1 << 14,
    RANDOM_BYTE = 0x2a,
    /* In an argument that neither system call has: this one comes from here, and is let through. */
    OURS = 0x5eed,
};

/* linux_dirent64 of getdents64(2). */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t size;
    uint8_t type;
    char name[];
};

ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
    (void)flags;
    memset(buffer, RANDOM_BYTE, size);
    return (ssize_t)size;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    *now = (struct timespec){.tv_sec = NOW};
    return 0;
}

/* Only calls that are safe in a handler of signals. */
static void fail(const char *reason) {
    (void)!write(STDERR_FILENO, "steady: ", 8);
    (void)!write(STDERR_FILENO, reason, strlen(reason));
    (void)!write(STDERR_FILENO, "\n", 1);
    _exit(1);
}

static long steady_statx(long folder, long path, long flags, long mask, struct statx *found) {
    long result = syscall(SYS_statx, folder, path, flags, mask, found, (long)OURS);
    if (result == -1)
        return -errno;
    struct statx_timestamp now = {.tv_sec = NOW};
    found->stx_atime = found->stx_btime = found->stx_ctime = found->stx_mtime = now;
    found->stx_ino = found->stx_nlink = 1;
    found->stx_dev_major = found->stx_dev_minor = 0;
    if (S_ISDIR(found->stx_mode))
        found->stx_size = 0;
    return 0;
}

/* The entries of the folder that is being read. One at a time is: the guest waits for each answer. */
static struct {
    int lock;
    dev_t device;
    ino_t inode;
    size_t count, next;
    struct entry *entries[LISTING_ENTRIES];
    _Alignas(struct entry) unsigned char bytes[LISTING_BYTES];
} listing;

static long read_folder(long handle) {
    size_t used = 0;
    listing.count = listing.next = 0;
    for (;;) {
        long got = syscall(SYS_getdents64, handle, listing.bytes + used, LISTING_BYTES - used, 0, 0, (long)OURS);
        if (got == -1 && errno == EINVAL && used > 0)
            fail("a folder has too many entries");
        if (got == -1)
            return -errno;
        if (got == 0)
            break;
        for (long at = 0; at < got;) {
            struct entry *entry = (struct entry *)(listing.bytes + used + at);
            if (listing.count == LISTING_ENTRIES)
                fail("a folder has too many entries");
            size_t place = listing.count++;
            for (; place > 0 && strcmp(listing.entries[place - 1]->name, entry->name) > 0; place--)
                listing.entries[place] = listing.entries[place - 1];
            listing.entries[place] = entry;
            at += entry->size;
        }
        used += (size_t)got;
    }
    return 0;
}

static long next_entries(long handle, unsigned char *buffer, size_t size) {
    struct stat folder;
    if (fstat((int)handle, &folder) != 0)
        return -errno;
    if (listing.next < listing.count) {
        if (folder.st_dev != listing.device || folder.st_ino != listing.inode)
            fail("two folders are read at once");
    } else {
        /* Another folder, or the end of this one, which the kernel knows. */
        long result = read_folder(handle);
        if (result < 0)
            return result;
        listing.device = folder.st_dev;
        listing.inode = folder.st_ino;
    }
    size_t used = 0;
    while (listing.next < listing.count) {
        struct entry *entry = listing.entries[listing.next];
        if (used + entry->size > size)
            return used > 0 ? (long)used : -EINVAL;
        entry->inode = 1;
        entry->next = (int64_t)++listing.next;
        memcpy(buffer + used, entry, entry->size);
        used += entry->size;
    }
    return (long)used;
}

static long steady_getdents64(long handle, unsigned char *buffer, size_t size) {
    while (__atomic_exchange_n(&listing.lock, 1, __ATOMIC_ACQUIRE))
        ;
    long result = next_entries(handle, buffer, size);
    __atomic_store_n(&listing.lock, 0, __ATOMIC_RELEASE);
    return result;
}

static void on_caught_call(int signal, siginfo_t *info, void *state) {
    (void)signal;
    ucontext_t *context = state;
    int before = errno;
    if (info->si_syscall == SYS_statx)
        RESULT(context) = steady_statx((long)ARGUMENT(context, 0), (long)ARGUMENT(context, 1),
                                       (long)ARGUMENT(context, 2), (long)ARGUMENT(context, 3),
                                       (struct statx *)ARGUMENT(context, 4));
    else
        RESULT(context) = steady_getdents64((long)ARGUMENT(context, 0), (unsigned char *)ARGUMENT(context, 1),
                                            (size_t)ARGUMENT(context, 2));
    errno = before;
}

__attribute__((constructor)) static void begin(void) {
    struct sigaction action = {.sa_sigaction = on_caught_call, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getdents64, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[5])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OURS, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (sigaction(SIGSYS, &action, NULL) != 0)
        fail("no handler for SIGSYS");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        fail("this machine lets a program have no seccomp filter");
}
