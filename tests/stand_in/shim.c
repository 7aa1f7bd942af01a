/* The part of libcudnn that needs a GPU, handed to one callback. Linked against the real libcudnn, so that every other
 * function, the descriptors' above all, is the real one. No arithmetic is done here.
 *
 * Each function passes its name and its arguments, widened to 64 bits, in their order; the callback's result is the
 * status. A float travels as the bits of a double. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef int (*hook_t)(const char *name, const uint64_t *arguments, int count);
typedef const void *p; /* any pointer: a handle, a descriptor, host or device memory */

static hook_t hook;

void shim_set_hook(hook_t callback) { hook = callback; }

struct calls {
    void (*call)(void);
    int count;
};

static void *made_in_a_thread(void *given)
{
    const struct calls *calls = given;
    for (int i = 0; i < calls->count; i++)
        calls->call();
    return NULL;
}

/* Call from one thread that Python did not start, as XLA does: Python's own state of it ends with each call. */
int shim_call_in_a_thread(void (*call)(void), int count)
{
    struct calls calls = {call, count};
    pthread_t thread;
    int status = pthread_create(&thread, NULL, made_in_a_thread, &calls);
    return status ? status : pthread_join(thread, NULL);
}

/* A callback that does nothing: what is left is the cost of the way here. */
int shim_idle(const char *name, const uint64_t *arguments, int count)
{
    (void)name, (void)arguments, (void)count;
    return 0;
}

static uint64_t bits(double value)
{
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

#define P(x) (uint64_t)(uintptr_t)(x)
#define I(x) (uint64_t)(int64_t)(x)
#define CALL(...)                                                                     \
    {                                                                                 \
        const uint64_t arguments[] = {__VA_ARGS__};                                   \
        return hook(__func__, arguments, sizeof arguments / sizeof *arguments);       \
    }

size_t cudnnGetVersion(void) { return (size_t)hook(__func__, NULL, 0); }

int cudnnCreate(p handle) CALL(P(handle))
int cudnnDestroy(p handle) CALL(P(handle))
int cudnnSetStream(p handle, p stream) CALL(P(handle), P(stream))

int cudnnDropoutGetStatesSize(p handle, p size) CALL(P(handle), P(size))
int cudnnSetDropoutDescriptor(p desc, p handle, float dropout, p states, size_t nbytes, unsigned long long seed)
    CALL(P(desc), P(handle), bits(dropout), P(states), nbytes, seed)
int cudnnRestoreDropoutDescriptor(p desc, p handle, float dropout, p states, size_t nbytes, unsigned long long seed)
    CALL(P(desc), P(handle), bits(dropout), P(states), nbytes, seed)

int cudnnBuildRNNDynamic(p handle, p rnn, int batch) CALL(P(handle), P(rnn), I(batch))
int cudnnGetRNNTempSpaceSizes(p handle, p rnn, int mode, p x_desc, p workspace, p reserve)
    CALL(P(handle), P(rnn), I(mode), P(x_desc), P(workspace), P(reserve))
int cudnnGetRNNWeightSpaceSize(p handle, p rnn, p size) CALL(P(handle), P(rnn), P(size))
int cudnnGetRNNWeightParams(p handle, p rnn, int pseudo_layer, size_t nbytes, p base, int id, p m_desc, p m_addr,
                            p b_desc, p b_addr)
    CALL(P(handle), P(rnn), I(pseudo_layer), nbytes, P(base), I(id), P(m_desc), P(m_addr), P(b_desc), P(b_addr))
int cudnnGetRNNLinLayerMatrixParams(p handle, p rnn, int pseudo_layer, p x_desc, p w_desc, p base, int id, p desc,
                                    p addr)
    CALL(P(handle), P(rnn), I(pseudo_layer), P(x_desc), P(w_desc), P(base), I(id), P(desc), P(addr))
int cudnnGetRNNLinLayerBiasParams(p handle, p rnn, int pseudo_layer, p x_desc, p w_desc, p base, int id, p desc,
                                  p addr)
    CALL(P(handle), P(rnn), I(pseudo_layer), P(x_desc), P(w_desc), P(base), I(id), P(desc), P(addr))

int cudnnRNNForward(p handle, p rnn, int mode, p dev_lengths, p x_desc, p x, p y_desc, p y, p h_desc, p hx, p hy,
                    p c_desc, p cx, p cy, size_t params_nbytes, p params, size_t workspace_nbytes, p workspace,
                    size_t reserve_nbytes, p reserve)
    CALL(P(handle), P(rnn), I(mode), P(dev_lengths), P(x_desc), P(x), P(y_desc), P(y), P(h_desc), P(hx), P(hy),
         P(c_desc), P(cx), P(cy), params_nbytes, P(params), workspace_nbytes, P(workspace), reserve_nbytes,
         P(reserve))
int cudnnRNNBackwardData_v8(p handle, p rnn, p dev_lengths, p y_desc, p y, p dy, p x_desc, p dx, p h_desc, p hx,
                            p dhy, p dhx, p c_desc, p cx, p dcy, p dcx, size_t params_nbytes, p params,
                            size_t workspace_nbytes, p workspace, size_t reserve_nbytes, p reserve)
    CALL(P(handle), P(rnn), P(dev_lengths), P(y_desc), P(y), P(dy), P(x_desc), P(dx), P(h_desc), P(hx), P(dhy),
         P(dhx), P(c_desc), P(cx), P(dcy), P(dcx), params_nbytes, P(params), workspace_nbytes, P(workspace),
         reserve_nbytes, P(reserve))
int cudnnRNNBackwardWeights_v8(p handle, p rnn, int add, p dev_lengths, p x_desc, p x, p h_desc, p hx, p y_desc, p y,
                               size_t params_nbytes, p d_params, size_t workspace_nbytes, p workspace,
                               size_t reserve_nbytes, p reserve)
    CALL(P(handle), P(rnn), I(add), P(dev_lengths), P(x_desc), P(x), P(h_desc), P(hx), P(y_desc), P(y),
         params_nbytes, P(d_params), workspace_nbytes, P(workspace), reserve_nbytes, P(reserve))
