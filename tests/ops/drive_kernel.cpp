// Runs the CPU kernel without Python, several calls at once, for tools that watch a whole program:
//
//     g++ -std=c++17 -g -O1 -pthread -DISA=avx2 -mavx2 -mfma -ffp-contract=off -fsanitize=thread
//         tests/ops/drive_kernel.cpp -o drive && ./drive 4
//
// The argument is the number of threads of each call. Ends with 1 if it changes a bit of a result.

#include "../../src/nse/ops/cpu/kernel.cpp"

#include <cstdio>

#define RUN(name) JOIN(nse_##name##_, ISA)

struct Uninitialized : std::allocator<float> {  // so that a tool notices what is read before it is written
  template <class T>
  struct rebind {
    using other = Uninitialized;
  };
  template <class T>
  void construct(T*) {}
  template <class T>
  void construct(T* p, const T& x) {
    *p = x;
  }
};
using Numbers = std::vector<float, Uninitialized>;

static Numbers draw(size_t count, float scale, uint32_t seed) {
  Numbers numbers(count);
  for (float& x : numbers) seed = seed * 1664525 + 1013904223, x = scale * (seed / 2147483648.0f - 1);
  return numbers;
}

// Computes answers, or outputs and gradients; returns all of them one after the other.
static Numbers compute(int64_t threads, bool train) {
  const int64_t B = 5, T = 130, k = 53, layers = 2, n = 2, d = 3, sizes[n] = {70, 20}, S = 90;
  const int64_t lengths[B] = {130, 126, 0, 3, 130}, slot_lengths[n * B] = {70, 65, 5, 0, 70, 20, 1, 20, 0, 3};
  std::vector<Numbers> weights, d_weights;
  const auto add = [&](int64_t count) {
    weights.push_back(draw(count, 0.2f, 7 + weights.size())), d_weights.emplace_back(count);
  };
  for (int part = 0; part < 2; ++part) {
    for (int i = 0; i < layers; ++i)
      add(4 * k * k * (part && !i && train ? d : 1)), add(4 * k * k), add(4 * k), add(4 * k);
    if (!part) add(train ? d * k * d * k : 4 * k * d * k), add(train ? d * k : 4 * k);
  }
  std::vector<const float*> w;
  std::vector<float*> dw;
  for (size_t i = 0; i < weights.size(); ++i) w.push_back(weights[i].data()), dw.push_back(d_weights[i].data());
  const Numbers x = draw(B * T * k, 1, 1), slots = draw(B * S * k, 1, 2), state = draw(layers * B * k, 1, 3);
  Numbers outputs(B * T * k), memory(B * S * k), keys(B * T * S, 0.0f), ends[4];
  Numbers d_x(x.size()), d_slots(slots.size()), d_starts[4];
  for (int i = 0; i < 4; ++i) ends[i].resize(state.size()), d_starts[i].resize(state.size());

  Call call{};
  call.B = B, call.T = T, call.k = k, call.layers = layers, call.memories = n, call.S = S;
  call.threads = threads, call.folded = !train, call.keep = train;
  call.lengths = lengths, call.slot_sizes = sizes, call.slot_lengths = slot_lengths;
  call.weights = w.data(), call.d_weights = dw.data(), call.x = x.data(), call.slots = slots.data();
  call.read_h = call.read_c = call.write_h = call.write_c = state.data();
  call.outputs = outputs.data(), call.memory = memory.data(), call.keys = keys.data();
  call.read_h_end = ends[0].data(), call.read_c_end = ends[1].data();
  call.write_h_end = ends[2].data(), call.write_c_end = ends[3].data();
  Numbers packed(RUN(count_packed)(&call)), kept(train ? RUN(count_kept)(&call) : 0);
  call.packed = packed.data(), call.kept = train ? kept.data() : nullptr;
  int errors = RUN(pack)(&call) + RUN(forward)(&call);
  if (train) {
    call.d_outputs = outputs.data(), call.d_memory = memory.data(), call.d_keys = keys.data();
    call.d_read_h_end = ends[0].data(), call.d_write_c_end = ends[3].data();
    call.d_x = d_x.data(), call.d_slots = d_slots.data();
    call.d_read_h = d_starts[0].data(), call.d_read_c = d_starts[1].data();
    call.d_write_h = d_starts[2].data(), call.d_write_c = d_starts[3].data();
    errors += RUN(backward)(&call);
  }
  if (errors) std::printf("the kernel failed\n"), std::exit(2);
  Numbers all(outputs);
  const auto append = [&](const Numbers& more) { all.insert(all.end(), more.begin(), more.end()); };
  append(memory), append(keys);
  for (const Numbers& end : ends) append(end);
  if (train) {
    append(d_x), append(d_slots);
    for (const Numbers& start : d_starts) append(start);
    for (const Numbers& weight : d_weights) append(weight);
  }
  return all;
}

int main(int count, char** words) {
  const int threads = count > 1 ? std::atoi(words[1]) : 4;
  bool same = true;
  for (bool train : {false, true}) {
    const Numbers expected = compute(1, train);
    std::vector<std::thread> callers;
    std::vector<Numbers> results(2);
    for (Numbers& result : results) callers.emplace_back([&result, threads, train] { result = compute(threads, train); });
    for (std::thread& caller : callers) caller.join();
    for (const Numbers& result : results)
      same = same && std::memcmp(result.data(), expected.data(), expected.size() * sizeof(float)) == 0;
  }
  std::printf(same ? "the same bits with %d threads\n" : "%d threads change bits\n", threads);
  return same ? 0 : 1;
}
