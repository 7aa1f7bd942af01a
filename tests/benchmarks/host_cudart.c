// The CUDA runtime calls of raw_cudnn.cpp over host memory: what it does can be run, and seen, without a GPU.
// Nothing is deferred: a capture runs its calls at once, and launching the graph does nothing.

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

cudaError_t cudaGetDeviceCount(int* count) { *count = 1; return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) { return error == cudaSuccess ? "no error" : "an error"; }

cudaError_t cudaMalloc(void** data, size_t nbytes) {
    *data = aligned_alloc(256, (nbytes + 255) / 256 * 256);
    return *data ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* data) { free(data); return cudaSuccess; }
cudaError_t cudaMemset(void* data, int value, size_t nbytes) { memset(data, value, nbytes); return cudaSuccess; }
cudaError_t cudaMemsetAsync(void* data, int value, size_t nbytes, cudaStream_t stream) { (void)stream; return cudaMemset(data, value, nbytes); }
cudaError_t cudaMemcpy(void* to, const void* from, size_t nbytes, enum cudaMemcpyKind kind) { (void)kind; memcpy(to, from, nbytes); return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t nbytes, enum cudaMemcpyKind kind, cudaStream_t stream) { (void)stream; return cudaMemcpy(to, from, nbytes, kind); }

cudaError_t cudaStreamCreate(cudaStream_t* stream) { *stream = (cudaStream_t)0x7000; return cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { (void)stream; return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) { (void)stream; (void)mode; return cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) { (void)stream; *graph = (cudaGraph_t)0x7100; return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) { (void)graph; (void)flags; *exec = (cudaGraphExec_t)0x7200; return cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { (void)graph; return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { (void)exec; return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) { (void)exec; (void)stream; return cudaSuccess; }

cudaError_t cudaEventCreate(cudaEvent_t* event) { *event = calloc(1, sizeof(struct timespec)); return *event ? cudaSuccess : cudaErrorMemoryAllocation; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { free(event); return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { (void)stream; clock_gettime(CLOCK_MONOTONIC, (struct timespec*)event); return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t stop) {
    const struct timespec *a = (struct timespec*)start, *b = (struct timespec*)stop;
    *ms = (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return cudaSuccess;
}
