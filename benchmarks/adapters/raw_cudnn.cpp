// cuDNN's RNN calls from C++, with nothing of ours around them: what a binding is measured against.
//
//   raw_cudnn OPTIONS                 prepare, make one call, time it; one JSON object on standard output
//   raw_cudnn --describe OPTIONS      what was understood, without a GPU
//   raw_cudnn --serve                 lines on standard input: "prepare OPTIONS", "sample SECONDS", "quit"
//
// With --data DIR the numbers are read from params.bin, x.bin and dy.bin there (in the row's type, nothing else), and
// one call's results are written beside them: y.bin, hy.bin, cy.bin, dx.bin, dw.bin.
//
// Build: g++ -O2 -std=c++17 raw_cudnn.cpp -I<cuda>/include -I<cudnn>/include -L<cuda>/lib64 -lcudart <libcudnn.so.9> -ldl

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Error : std::runtime_error {
    explicit Error(const std::string& text, bool refused = false) : std::runtime_error(text), refused(refused) {}
    bool refused;  // there is no such thing here, as opposed to a failure
};

void check(cudaError_t status, const char* what) {
    if (status != cudaSuccess) throw Error(std::string(what) + ": " + cudaGetErrorString(status));
}

void check(cudnnStatus_t status, const char* what) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    const int family = static_cast<int>(status) / 1000;  // cuDNN 9: 2xxx BAD_PARAM, 3xxx NOT_SUPPORTED
    throw Error(std::string(what) + ": " + cudnnGetErrorString(status), family == 2 || family == 3);
}

#define CHECK(call) check((call), #call)

std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out + '"';
}

struct Options {
    std::string cell = "lstm", dtype = "float32", math = "fma", algo = "standard", pass = "infer", data;
    int layers = 1, dirs = 1, batch = 1, steps = 1, inputs = 1, units = 1, proj = 0;
    bool skip = false, carried = false, graph = false, describe = false, serve = false;
    double seconds = 0.2;
    std::vector<int> lengths;
};

const std::map<std::string, cudnnRNNMode_t> kCells = {{"relu", CUDNN_RNN_RELU}, {"tanh", CUDNN_RNN_TANH}, {"lstm", CUDNN_LSTM}, {"gru", CUDNN_GRU}};
const std::map<std::string, cudnnDataType_t> kTypes = {{"float16", CUDNN_DATA_HALF}, {"bfloat16", CUDNN_DATA_BFLOAT16}, {"float32", CUDNN_DATA_FLOAT}, {"float64", CUDNN_DATA_DOUBLE}};
const std::map<std::string, int> kItemSizes = {{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}};
const std::map<std::string, cudnnMathType_t> kMaths = {{"default", CUDNN_DEFAULT_MATH}, {"tensor_op", CUDNN_TENSOR_OP_MATH}, {"tensor_op_allow_conversion", CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION}, {"fma", CUDNN_FMA_MATH}};
const std::map<std::string, cudnnRNNAlgo_t> kAlgos = {{"standard", CUDNN_RNN_ALGO_STANDARD}, {"persist_static", CUDNN_RNN_ALGO_PERSIST_STATIC}, {"persist_dynamic", CUDNN_RNN_ALGO_PERSIST_DYNAMIC}, {"persist_static_small_h", CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H}};
const std::map<std::string, int> kPasses = {{"infer", 0}, {"train", 1}, {"backward-data", 2}, {"backward-weights", 3}, {"step", 4}};

template <typename Value>
Value one_of(const std::map<std::string, Value>& known, const std::string& name, const std::string& value) {
    const auto found = known.find(value);
    if (found != known.end()) return found->second;
    std::string names;
    for (const auto& entry : known) names += (names.empty() ? "" : ", ") + entry.first;
    throw Error("Invalid --" + name + ": '" + value + "', expecting one of " + names);
}

int positive(const std::string& name, const std::string& value, int least = 1) {
    std::size_t used = 0;
    long number = 0;
    try {
        number = std::stol(value, &used);
    } catch (const std::exception&) {
    }
    if (used != value.size() || value.empty() || number < least || number > 2147483647L)
        throw Error("Invalid --" + name + ": '" + value + "', expecting an integer of at least " + std::to_string(least));
    return static_cast<int>(number);
}

Options parse(const std::vector<std::string>& words) {
    Options o;
    const std::map<std::string, int*> numbers = {{"layers", &o.layers}, {"dirs", &o.dirs}, {"batch", &o.batch}, {"steps", &o.steps}, {"inputs", &o.inputs}, {"units", &o.units}};
    const std::map<std::string, std::string*> texts = {{"cell", &o.cell}, {"dtype", &o.dtype}, {"math", &o.math}, {"algo", &o.algo}, {"pass", &o.pass}, {"data", &o.data}};
    const std::map<std::string, bool*> flags = {{"skip", &o.skip}, {"carried", &o.carried}, {"graph", &o.graph}, {"describe", &o.describe}, {"serve", &o.serve}};
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i].rfind("--", 0) != 0) throw Error("'" + words[i] + "' is not an option");
        const std::string name = words[i].substr(2);
        if (flags.count(name)) {
            *flags.at(name) = true;
            continue;
        }
        if (!numbers.count(name) && !texts.count(name) && name != "proj" && name != "seconds" && name != "lengths")
            throw Error("--" + name + " is not an option");
        if (++i == words.size()) throw Error("--" + name + " needs a value");
        const std::string& value = words[i];
        if (numbers.count(name)) *numbers.at(name) = positive(name, value);
        else if (texts.count(name)) *texts.at(name) = value;
        else if (name == "proj") o.proj = positive(name, value);
        else if (name == "seconds") {
            char* end = nullptr;
            o.seconds = std::strtod(value.c_str(), &end);
            if (*end != '\0' || !(o.seconds > 0)) throw Error("Invalid --seconds: '" + value + "', expecting a number above 0");
        } else {
            std::stringstream list(value);
            for (std::string item; std::getline(list, item, ',');) o.lengths.push_back(positive(name, item));
        }
    }
    one_of(kCells, "cell", o.cell);
    one_of(kTypes, "dtype", o.dtype);
    one_of(kMaths, "math", o.math);
    one_of(kAlgos, "algo", o.algo);
    one_of(kPasses, "pass", o.pass);
    if (o.dirs > 2) throw Error("Invalid --dirs: expecting 1 or 2");
    if (o.proj && (o.cell != "lstm" || o.proj >= o.units)) throw Error("Invalid --proj: expecting an LSTM, and less than --units");
    if (o.skip && o.inputs != o.units) throw Error("Invalid --skip: --inputs and --units differ");
    if (o.lengths.empty()) o.lengths.assign(o.batch, o.steps);
    if (static_cast<int>(o.lengths.size()) != o.batch) throw Error("Invalid --lengths: expecting " + std::to_string(o.batch) + " of them");
    if (*std::max_element(o.lengths.begin(), o.lengths.end()) > o.steps) throw Error("Invalid --lengths: more than --steps");
    if (o.carried && o.pass != "infer") throw Error("Invalid --carried: states are carried in --pass infer alone");
    return o;
}

struct Memory {
    explicit Memory(std::size_t nbytes) : nbytes(nbytes) {
        if (nbytes) CHECK(cudaMalloc(&data, nbytes));
        if (nbytes) CHECK(cudaMemset(data, 0, nbytes));
    }
    ~Memory() { cudaFree(data); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    void read(const std::string& path) {
        std::vector<char> host(nbytes);
        std::ifstream file(path, std::ios::binary);
        file.read(host.data(), static_cast<std::streamsize>(nbytes));
        if (!file || file.peek() != EOF) throw Error(path + ": expecting " + std::to_string(nbytes) + " bytes");
        CHECK(cudaMemcpy(data, host.data(), nbytes, cudaMemcpyHostToDevice));
    }
    void write(const std::string& path) const {
        std::vector<char> host(nbytes);
        CHECK(cudaMemcpy(host.data(), data, nbytes, cudaMemcpyDeviceToHost));
        std::ofstream(path, std::ios::binary).write(host.data(), static_cast<std::streamsize>(nbytes));
    }

    void* data = nullptr;
    std::size_t nbytes;
};

using Buffer = std::unique_ptr<Memory>;
Buffer make(std::size_t nbytes) { return std::make_unique<Memory>(nbytes); }

// One RNN with its buffers. Its descriptors live as long as the process.
class Rnn {
public:
    Rnn(cudnnHandle_t handle, cudaStream_t stream, const Options& options) : o_(options), handle_(handle), stream_(stream) {
        describe();
        allocate();
        if (!o_.data.empty()) {
            params_->read(o_.data + "/params.bin");
            x_->read(o_.data + "/x.bin");
            if (training_) dy_->read(o_.data + "/dy.bin");
        }
        call_once();
        if (!o_.data.empty()) write();
        if (o_.graph) capture();
    }

    ~Rnn() {
        if (exec_) cudaGraphExecDestroy(exec_);
    }

    std::function<void()> call() {
        if (o_.graph) return [this] { CHECK(cudaGraphLaunch(exec_, stream_)); };
        return [this] { run(); };
    }

    // A backward uses up what its forward left: what has to run before each call of one, untimed.
    bool apart() const { return o_.pass.rfind("backward", 0) == 0; }
    void before() {
        if (apart()) forward();
        if (o_.pass == "backward-weights") backward_data();
    }

    std::size_t workspace_nbytes() const { return workspace_->nbytes; }
    std::size_t reserve_nbytes() const { return reserve_->nbytes; }

private:
    void describe() {
        const auto type = one_of(kTypes, "dtype", o_.dtype);
        const auto algo = one_of(kAlgos, "algo", o_.algo);
        const auto precision = o_.dtype == "float64" ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
        training_ = o_.pass != "infer";
        CHECK(cudnnCreateDropoutDescriptor(&dropout_));
        CHECK(cudnnSetDropoutDescriptor(dropout_, handle_, 0.0F, nullptr, 0, 0));
        CHECK(cudnnCreateRNNDescriptor(&rnn_));
        CHECK(cudnnSetRNNDescriptor_v8(
            rnn_, algo, one_of(kCells, "cell", o_.cell), CUDNN_RNN_DOUBLE_BIAS,
            o_.dirs == 2 ? CUDNN_BIDIRECTIONAL : CUDNN_UNIDIRECTIONAL, o_.skip ? CUDNN_SKIP_INPUT : CUDNN_LINEAR_INPUT, type,
            precision, one_of(kMaths, "math", o_.math), o_.inputs, o_.units, o_.proj ? o_.proj : o_.units, o_.layers, dropout_,
            CUDNN_RNN_PADDED_IO_ENABLED));
        if (algo == CUDNN_RNN_ALGO_PERSIST_DYNAMIC) CHECK(cudnnBuildRNNDynamic(handle_, rnn_, o_.batch));
        double zero = 0;
        const int widths[2] = {o_.inputs, width()};
        cudnnRNNDataDescriptor_t* descriptors[2] = {&x_desc_, &y_desc_};
        for (int i = 0; i < 2; ++i) {
            CHECK(cudnnCreateRNNDataDescriptor(descriptors[i]));
            CHECK(cudnnSetRNNDataDescriptor(
                *descriptors[i], type, CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED, o_.steps, o_.batch, widths[i],
                o_.lengths.data(), &zero));
        }
        const int sizes[2] = {o_.proj ? o_.proj : o_.units, o_.units};
        cudnnTensorDescriptor_t* states[2] = {&h_desc_, &c_desc_};
        for (int i = 0; i < 2; ++i) {
            const int dims[3] = {o_.layers * o_.dirs, o_.batch, sizes[i]};
            const int strides[3] = {o_.batch * sizes[i], sizes[i], 1};
            CHECK(cudnnCreateTensorDescriptor(states[i]));
            CHECK(cudnnSetTensorNdDescriptor(*states[i], type, 3, dims, strides));
        }
    }

    int width() const { return o_.dirs * (o_.proj ? o_.proj : o_.units); }

    void allocate() {
        const std::size_t item = kItemSizes.at(o_.dtype), places = static_cast<std::size_t>(o_.steps) * o_.batch;
        const std::size_t rows = static_cast<std::size_t>(o_.layers) * o_.dirs * o_.batch;
        std::size_t params = 0, workspace = 0, reserve = 0;
        CHECK(cudnnGetRNNWeightSpaceSize(handle_, rnn_, &params));
        CHECK(cudnnGetRNNTempSpaceSizes(handle_, rnn_, mode(), x_desc_, &workspace, &reserve));
        params_ = make(params);
        x_ = make(places * o_.inputs * item);
        y_ = make(places * width() * item);
        const std::size_t h = rows * (o_.proj ? o_.proj : o_.units) * item, c = rows * o_.units * item;
        for (int i = 0; i < 2; ++i) h_[i] = make(h), c_[i] = make(c);
        workspace_ = make(workspace);
        reserve_ = make(training_ ? reserve : 0);
        lengths_ = make(o_.batch * sizeof(int));
        CHECK(cudaMemcpy(lengths_->data, o_.lengths.data(), lengths_->nbytes, cudaMemcpyHostToDevice));
        if (training_) {
            dy_ = make(y_->nbytes), dx_ = make(x_->nbytes), dw_ = make(params);
            for (int i = 0; i < 2; ++i) dh_[i] = make(h), dc_[i] = make(c);
        }
        const auto whole = std::count(o_.lengths.begin(), o_.lengths.end(), o_.steps);
        Memory* dx = whole == o_.batch ? dx_.get() : nullptr;  // else cuDNN may leave the padding as it is: zeros
        for (Memory* written : {y_.get(), h_[1].get(), c_[1].get(), dx, dw_.get()})  // all bits set: NaN
            if (written && written->nbytes) CHECK(cudaMemset(written->data, 0xFF, written->nbytes));
    }

    cudnnForwardMode_t mode() const { return training_ ? CUDNN_FWD_MODE_TRAINING : CUDNN_FWD_MODE_INFERENCE; }
    const int32_t* lengths() const { return static_cast<const int32_t*>(lengths_->data); }

    void forward() {
        const int from = turn_, to = 1 - turn_;
        CHECK(cudnnRNNForward(
            handle_, rnn_, mode(), lengths(), x_desc_, x_->data, y_desc_, y_->data, h_desc_, o_.carried ? h_[from]->data : nullptr,
            h_[to]->data, c_desc_, o_.carried ? c_[from]->data : nullptr, c_[to]->data, params_->nbytes, params_->data,
            workspace_->nbytes, workspace_->data, reserve_->nbytes, reserve_->data));
        if (o_.carried && !o_.graph) turn_ = to;  // a graph has its pointers for good
    }
    void backward_data() {
        CHECK(cudnnRNNBackwardData_v8(
            handle_, rnn_, lengths(), y_desc_, y_->data, dy_->data, x_desc_, dx_->data, h_desc_, nullptr, dh_[0]->data,
            dh_[1]->data, c_desc_, nullptr, dc_[0]->data, dc_[1]->data, params_->nbytes, params_->data, workspace_->nbytes,
            workspace_->data, reserve_->nbytes, reserve_->data));
    }
    void backward_weights() {  // ADD onto zeros, as every binding does it
        CHECK(cudaMemsetAsync(dw_->data, 0, dw_->nbytes, stream_));
        CHECK(cudnnRNNBackwardWeights_v8(
            handle_, rnn_, CUDNN_WGRAD_MODE_ADD, lengths(), x_desc_, x_->data, h_desc_, nullptr, y_desc_, y_->data, dw_->nbytes,
            dw_->data, workspace_->nbytes, workspace_->data, reserve_->nbytes, reserve_->data));
    }

    void run() {
        if (o_.pass.rfind("backward", 0) != 0) forward();
        if (o_.pass == "backward-data" || o_.pass == "step") backward_data();
        if (o_.pass == "backward-weights" || o_.pass == "step") backward_weights();
    }

    void call_once() {
        forward();
        if (training_) backward_data(), backward_weights();
        CHECK(cudaStreamSynchronize(stream_));
    }

    void write() const {
        y_->write(o_.data + "/y.bin");
        h_[1]->write(o_.data + "/hy.bin");
        if (o_.cell == "lstm") c_[1]->write(o_.data + "/cy.bin");
        if (!training_) return;
        dx_->write(o_.data + "/dx.bin");
        dw_->write(o_.data + "/dw.bin");
    }

    void capture() {
        cudaGraph_t graph = nullptr;
        CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
        try {
            run();
            if (o_.carried) {
                CHECK(cudaMemcpyAsync(h_[0]->data, h_[1]->data, h_[0]->nbytes, cudaMemcpyDeviceToDevice, stream_));
                CHECK(cudaMemcpyAsync(c_[0]->data, c_[1]->data, c_[0]->nbytes, cudaMemcpyDeviceToDevice, stream_));
            }
        } catch (...) {
            cudaStreamEndCapture(stream_, &graph);
            throw;
        }
        CHECK(cudaStreamEndCapture(stream_, &graph));
        CHECK(cudaGraphInstantiate(&exec_, graph, 0));
        CHECK(cudaGraphDestroy(graph));
    }

    Options o_;
    cudnnHandle_t handle_;
    cudaStream_t stream_;
    bool training_ = false;
    int turn_ = 0;
    cudnnDropoutDescriptor_t dropout_ = nullptr;
    cudnnRNNDescriptor_t rnn_ = nullptr;
    cudnnRNNDataDescriptor_t x_desc_ = nullptr, y_desc_ = nullptr;
    cudnnTensorDescriptor_t h_desc_ = nullptr, c_desc_ = nullptr;
    cudaGraphExec_t exec_ = nullptr;
    Buffer params_, x_, y_, dy_, dx_, dw_, workspace_, reserve_, lengths_, h_[2], c_[2], dh_[2], dc_[2];
};

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double, std::micro>(Clock::now() - start).count(); }

double percentile(std::vector<double> values, double percent) {
    std::sort(values.begin(), values.end());
    const double at = percent / 100 * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(at);
    const auto above = std::min(below + 1, values.size() - 1);
    return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

// The same figures as benchmarks/timing.py, event_sample.
void sample(Rnn& rnn, cudaStream_t stream, double seconds, int launches, std::ostream& out) {
    const auto call = rnn.call();
    cudaEvent_t start, stop;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&stop));
    const auto elapsed = [&](int calls) {
        rnn.before();
        CHECK(cudaEventRecord(start, stream));
        for (int i = 0; i < calls; ++i) call();
        CHECK(cudaEventRecord(stop, stream));
        CHECK(cudaStreamSynchronize(stream));
        float ms = 0;
        CHECK(cudaEventElapsedTime(&ms, start, stop));
        return 1000.0 * ms;
    };
    for (int i = 0; i < 5; ++i) rnn.before(), call();
    CHECK(cudaStreamSynchronize(stream));
    int together = 1;
    while (!rnn.apart() && elapsed(together) < 2000 && together < 16384) together *= 2;
    std::vector<double> times, latency, host;
    auto begun = Clock::now();
    while (times.size() < 30 && (since(begun) < seconds * 1e6 || times.size() < 3)) times.push_back(elapsed(together) / together);
    begun = Clock::now();
    while (since(begun) < seconds * 1e5 || latency.size() < 5) {
        rnn.before();
        CHECK(cudaStreamSynchronize(stream));
        const auto one = Clock::now();
        call();
        CHECK(cudaStreamSynchronize(stream));
        latency.push_back(since(one));
    }
    double pipelined = 0;
    if (!rnn.apart()) {
        const int queued = std::max(2, std::min(200, static_cast<int>(seconds * 1e5 / percentile(times, 50))));
        begun = Clock::now();
        for (int i = 0; i < queued; ++i) call();
        CHECK(cudaStreamSynchronize(stream));
        pipelined = since(begun) / queued;
        for (int i = 0; i < std::max(1, std::min(50, 1000 / std::max(launches, 1))); ++i) {
            const auto one = Clock::now();
            call();
            host.push_back(since(one));
        }
        CHECK(cudaStreamSynchronize(stream));
    }
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(stop));
    out << "{\"times_us\": [";
    for (std::size_t i = 0; i < times.size(); ++i) out << (i ? ", " : "") << times[i];
    out << "], \"latency_us\": " << percentile(latency, 50) << ", \"together\": " << together;
    if (!rnn.apart()) out << ", \"pipelined_us\": " << pipelined << ", \"host_us\": " << percentile(host, 50);
    out << "}";
}

int launches(const Options& o) { return o.graph ? 1 : 2 * o.steps * o.layers * o.dirs * (o.pass == "step" ? 3 : 1); }

std::string description(const Options& o) {
    std::ostringstream out;
    out << "{\"cell\": " << quoted(o.cell) << ", \"layers\": " << o.layers << ", \"dirs\": " << o.dirs << ", \"batch\": " << o.batch
        << ", \"steps\": " << o.steps << ", \"inputs\": " << o.inputs << ", \"units\": " << o.units << ", \"proj\": " << o.proj
        << ", \"skip\": " << (o.skip ? "true" : "false") << ", \"dtype\": " << quoted(o.dtype) << ", \"math\": " << quoted(o.math)
        << ", \"algo\": " << quoted(o.algo) << ", \"pass\": " << quoted(o.pass) << ", \"graph\": " << (o.graph ? "true" : "false")
        << ", \"lengths\": " << o.lengths.size() << ", \"cudnn_compiled\": " << CUDNN_VERSION << ", \"cudnn_loaded\": " << cudnnGetVersion();
    Dl_info where{};
    if (dladdr(reinterpret_cast<void*>(&cudnnGetVersion), &where) && where.dli_fname) out << ", \"linked\": " << quoted(where.dli_fname);
    out << "}";
    return out.str();
}

class Server {
public:
    std::string prepare(const Options& options) {
        if (!handle_) {
            int devices = 0;
            const cudaError_t status = cudaGetDeviceCount(&devices);
            if (status != cudaSuccess || !devices) throw Error(std::string("no CUDA device: ") + cudaGetErrorString(status), true);
            CHECK(cudaStreamCreate(&stream_));
            CHECK(cudnnCreate(&handle_));
            CHECK(cudnnSetStream(handle_, stream_));
        }
        rnn_.reset();
        options_ = options;
        rnn_ = std::make_unique<Rnn>(handle_, stream_, options);
        std::ostringstream out;
        out << "{\"workspace_nbytes\": " << rnn_->workspace_nbytes() << ", \"reserve_nbytes\": " << rnn_->reserve_nbytes() << "}";
        return out.str();
    }

    std::string time(double seconds) {
        if (!rnn_) throw Error("sample: nothing is prepared");
        std::ostringstream out;
        out.precision(9);
        sample(*rnn_, stream_, seconds, launches(options_), out);
        return out.str();
    }

private:
    cudnnHandle_t handle_ = nullptr;
    cudaStream_t stream_ = nullptr;
    Options options_;
    std::unique_ptr<Rnn> rnn_;
};

std::string failure(const Error& error) {
    return std::string("{\"") + (error.refused ? "refused" : "error") + "\": " + quoted(error.what()) + "}";
}

int serve() {
    Server server;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream in(line);
        std::vector<std::string> words;
        for (std::string word; in >> word;) words.push_back(word);
        if (words.empty()) continue;
        if (words[0] == "quit") return 0;
        try {
            const std::vector<std::string> rest(words.begin() + 1, words.end());
            if (words[0] == "prepare") std::cout << server.prepare(parse(rest)) << std::endl;
            else if (words[0] == "sample" && rest.size() == 1) std::cout << server.time(std::strtod(rest[0].c_str(), nullptr)) << std::endl;
            else throw Error("'" + words[0] + "' is no command");
        } catch (const Error& error) {
            std::cout << failure(error) << std::endl;
        }
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const Options options = parse(std::vector<std::string>(argv + 1, argv + argc));
        if (options.serve) return serve();
        if (options.describe) {
            std::cout << description(options) << std::endl;
            return 0;
        }
        Server server;
        const std::string sizes = server.prepare(options);
        std::cout << "{\"row\": " << description(options) << ", \"sizes\": " << sizes << ", \"figures\": " << server.time(options.seconds) << "}" << std::endl;
        return 0;
    } catch (const Error& error) {
        std::cout << failure(error) << std::endl;
        return 1;
    }
}
