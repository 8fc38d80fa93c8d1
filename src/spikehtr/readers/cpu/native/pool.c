/* Threads that share out the tasks of one call. A second caller at the same time does its tasks by itself. */
#include "common.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#define REST() __builtin_ia32_pause()
#else
#define REST() sched_yield()
#endif

enum { MOST = 64, PATIENCE = 4000 }; /* rounds a thread waits awake: calls follow each other within microseconds */

/* One number says it all: the round (upper 24 bits), how many tasks it has and which is next (20 bits each). A thread
   that wakes late finds no task left, or one of a later round, whose function and argument are then in place: a round
   ends when all its tasks are done, so what it needs stays as long as a task of it is in work. */
#define STATE(ROUND, COUNT, NEXT) ((uint64_t)(ROUND) << 40 | (uint64_t)(COUNT) << 20 | (uint64_t)(NEXT))
#define ROUND(STATE) ((STATE) >> 40)
#define COUNT(STATE) ((STATE) >> 20 & 0xfffff)
#define NEXT(STATE) ((STATE) & 0xfffff)

static struct {
    pthread_mutex_t busy, sleep;
    pthread_cond_t wake;
    pthread_t threads[MOST];
    int started, wanted;
    atomic_int stop, asleep;
    _Atomic uint64_t state;
    task_fn fn;
    const void *arg;
    atomic_int done;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .wanted = 1};

static void work(void) {
    for (;;) {
        uint64_t state = atomic_load(&pool.state);
        if (NEXT(state) >= COUNT(state)) return;
        if (!atomic_compare_exchange_weak(&pool.state, &state, state + 1)) continue;
        pool.fn(pool.arg, (int)NEXT(state));
        atomic_fetch_add(&pool.done, 1);
    }
}

static void *worker(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    for (;;) {
        for (int i = 0; i < PATIENCE && ROUND(atomic_load(&pool.state)) == seen; i++) REST();
        if (ROUND(atomic_load(&pool.state)) == seen) {
            pthread_mutex_lock(&pool.sleep);
            atomic_fetch_add(&pool.asleep, 1);
            while (ROUND(atomic_load(&pool.state)) == seen) pthread_cond_wait(&pool.wake, &pool.sleep);
            atomic_fetch_sub(&pool.asleep, 1);
            pthread_mutex_unlock(&pool.sleep);
        }
        seen = ROUND(atomic_load(&pool.state));
        if (atomic_load(&pool.stop)) return NULL;
        work();
    }
}

static void next_round(int count) {
    uint64_t round = (ROUND(atomic_load(&pool.state)) + 1) & 0xffffff;
    pthread_mutex_lock(&pool.sleep);
    atomic_store(&pool.state, STATE(round, count, 0));
    if (atomic_load(&pool.asleep)) pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.sleep);
}

static void stop_all(void) {
    if (!pool.started) return;
    atomic_store(&pool.stop, 1);
    next_round(0);
    for (int i = 0; i < pool.started; i++) pthread_join(pool.threads[i], NULL);
    atomic_store(&pool.stop, 0);
    pool.started = 0;
}

static void forget(void) { /* a forked child has none of its parent's threads */
    pool.started = 0;
    atomic_store(&pool.asleep, 0);
    atomic_store(&pool.state, 0);
    pthread_mutex_init(&pool.busy, NULL);
    pthread_mutex_init(&pool.sleep, NULL);
    pthread_cond_init(&pool.wake, NULL);
}

static void start_all(void) {
    static int told = 0;
    if (!told) pthread_atfork(NULL, NULL, forget);
    told = 1;
    atomic_store(&pool.state, 0);
    while (pool.started < pool.wanted - 1) {
        if (pthread_create(&pool.threads[pool.started], NULL, worker, NULL)) break;
        pool.started++;
    }
    pool.wanted = pool.started + 1; /* what could be had */
}

/* From now on this many threads work, the caller's among them. */
API void spikehtr_threads(int threads) {
    pthread_mutex_lock(&pool.busy);
    threads = threads < 1 ? 1 : least(threads, MOST);
    if (threads > 1 && threads != pool.started + 1) stop_all(); /* for one, they sleep: they will be wanted again */
    pool.wanted = threads;
    pthread_mutex_unlock(&pool.busy);
}

void run_tasks(task_fn fn, const void *arg, int count) {
    if (count <= 1 || count > 0xfffff || pool.wanted <= 1 || pthread_mutex_trylock(&pool.busy)) {
        for (int task = 0; task < count; task++) fn(arg, task);
        return;
    }
    if (pool.started != pool.wanted - 1) start_all();
    pool.fn = fn, pool.arg = arg;
    atomic_store(&pool.done, 0);
    next_round(count);
    work();
    while (atomic_load(&pool.done) < count) REST();
    pthread_mutex_unlock(&pool.busy);
}

static pthread_key_t leftover; /* frees what a thread that ends had */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_key(void) {
    if (pthread_key_create(&leftover, free)) abort();
}

void *scratch(size_t bytes) {
    static __thread char *memory;
    static __thread size_t size;
    if (bytes > size) {
        free(memory);
        size = (bytes + 63) / 64 * 64;
        memory = aligned_alloc(64, size);
        pthread_once(&once, make_key);
        if (!memory || pthread_setspecific(leftover, memory)) abort();
    }
    return memory;
}
