// Attention that reads the block table: no page is gathered, a windowed layer touches its window only.
//
// A work item is (sequence, kv head, tile of query tokens); a tile's rows are its tokens times the query heads that
// share the kv head, so decode (one token, the head group) and prefill (many tokens) are the same loops with other
// tile sizes. Per block: scores = Q K^T, running softmax, output += P V, all fp32. Keys lie [dim][block_tokens] and
// values [block_tokens][dim] in a page, so both products are sums of vectors without horizontal adds.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "vector_math.h"

namespace {

constexpr int kTileRows = 64;
constexpr float kMasked = -std::numeric_limits<float>::infinity();

struct Call {
  const void* query;
  const void* key;
  const void* value;
  void* out;
  const float* sink_logits;  // one per query head, or null
  void* key_pages;
  void* value_pages;
  const int32_t* key_table;
  const int32_t* value_table;
  const int64_t* rows;
  const int32_t* cu_seqlens;
  const int64_t* starts;
  int64_t query_token_stride, query_head_stride;
  int64_t key_token_stride, key_head_stride;
  int64_t value_token_stride, value_head_stride;
  int64_t key_table_width, value_table_width;
  int64_t key_scale, key_offset;
  int64_t value_scale, value_offset;
  int64_t window;  // 0: full attention
  int64_t sink_tokens;
  int32_t num_sequences, heads, kv_heads, key_dim, value_dim, block_tokens, threads, owns_pages;
  float scaling;
  float softcap;  // 0: none
};

struct Item {
  int32_t sequence, kv_head, begin, end;  // query tokens begin..end, counted from the sequence's first
};

// One thread's buffers for a tile.
struct Tile {
  int rows = 0, group = 0, padded = 0;
  std::vector<float> query, score, out, top, sum;

  explicit Tile(const Call& c)
      : group(c.heads / c.kv_heads), padded((c.block_tokens + kLanes - 1) / kLanes * kLanes) {
    const int most = std::max(kTileRows, group);
    query.resize(size_t(most) * c.key_dim);
    score.resize(size_t(most) * padded);
    out.resize(size_t(most) * c.value_dim);
    top.resize(most);
    sum.resize(most);
  }
};

template <class T>
void score_block(const Call& c, Tile& tile, const T* key) {
  int r = 0;
  for (; r + 6 <= tile.rows; r += 6)
    score_rows<6>(&tile.query[r * c.key_dim], key, &tile.score[r * tile.padded], c.key_dim, c.block_tokens, tile.padded);
  const float* query = tile.query.data() + size_t(r) * c.key_dim;
  float* score = tile.score.data() + size_t(r) * tile.padded;
  switch (tile.rows - r) {
    case 1: return score_rows<1>(query, key, score, c.key_dim, c.block_tokens, tile.padded);
    case 2: return score_rows<2>(query, key, score, c.key_dim, c.block_tokens, tile.padded);
    case 3: return score_rows<3>(query, key, score, c.key_dim, c.block_tokens, tile.padded);
    case 4: return score_rows<4>(query, key, score, c.key_dim, c.block_tokens, tile.padded);
    case 5: return score_rows<5>(query, key, score, c.key_dim, c.block_tokens, tile.padded);
  }
}

template <class T>
void mix_block(const Call& c, Tile& tile, const T* value, int begin, int end) {
  int r = 0;
  for (; r + 6 <= tile.rows; r += 6)
    mix_rows<6>(&tile.score[r * tile.padded], value, &tile.out[r * c.value_dim], c.value_dim, tile.padded, begin, end);
  const float* weight = tile.score.data() + size_t(r) * tile.padded;
  float* out = tile.out.data() + size_t(r) * c.value_dim;
  switch (tile.rows - r) {
    case 1: return mix_rows<1>(weight, value, out, c.value_dim, tile.padded, begin, end);
    case 2: return mix_rows<2>(weight, value, out, c.value_dim, tile.padded, begin, end);
    case 3: return mix_rows<3>(weight, value, out, c.value_dim, tile.padded, begin, end);
    case 4: return mix_rows<4>(weight, value, out, c.value_dim, tile.padded, begin, end);
    case 5: return mix_rows<5>(weight, value, out, c.value_dim, tile.padded, begin, end);
  }
}

// Mask one row's scores of positions base+begin .. base+end and fold them into its running softmax: scores become
// weights, top and sum follow, the row's output so far is scaled. Columns outside begin..end hold anything before.
void fold_row(const Call& c, Tile& tile, int r, int64_t position, int64_t base, int begin, int end) {
  float* score = &tile.score[size_t(r) * tile.padded];
  const int first = begin / kLanes * kLanes;
  const int last = (end + kLanes - 1) / kLanes * kLanes;
  if (c.softcap > 0.0f)
    for (int t = begin; t < end; ++t) score[t] = c.softcap * std::tanh(score[t] / c.softcap);
  std::fill(score + first, score + begin, kMasked);
  std::fill(score + end, score + last, kMasked);
  const int64_t low = c.window > 0 ? position - c.window + 1 : 0;
  for (int t = begin; t < end && base + t < low; ++t)
    if (base + t >= c.sink_tokens) score[t] = kMasked;
  for (int t = int(std::max<int64_t>(begin, position + 1 - base)); t < end; ++t) score[t] = kMasked;

  vfloat most = vfloat{} + tile.top[r];
  for (int t = first; t < last; t += kLanes) {
    const vfloat s = load(score + t);
    most = s > most ? s : most;
  }
  float top = tile.top[r];
  for (int i = 0; i < kLanes; ++i) top = std::max(top, most[i]);
  if (top == kMasked) {
    std::fill(score + first, score + last, 0.0f);
    return;
  }
  vfloat total = {};
  for (int t = first; t < last; t += kLanes) {
    const vfloat weight = exp_nonpositive(load(score + t) - top);
    store(score + t, weight);
    total += weight;
  }
  float added = 0.0f;
  for (int i = 0; i < kLanes; ++i) added += total[i];
  const float keep = std::exp(tile.top[r] - top);
  tile.sum[r] = tile.sum[r] * keep + added;
  tile.top[r] = top;
  if (keep != 1.0f) {
    float* out = &tile.out[size_t(r) * c.value_dim];
    for (int d = 0; d < c.value_dim; ++d) out[d] *= keep;
  }
}

template <class T>
void begin_tile(const Call& c, Tile& tile, const Item& item) {
  tile.rows = (item.end - item.begin) * tile.group;
  std::fill(tile.out.begin(), tile.out.begin() + size_t(tile.rows) * c.value_dim, 0.0f);
  const T* query = static_cast<const T*>(c.query);
  for (int r = 0; r < tile.rows; ++r) {
    const int head = item.kv_head * tile.group + r % tile.group;
    const int64_t token = c.cu_seqlens[item.sequence] + item.begin + r / tile.group;
    const T* from = query + token * c.query_token_stride + head * c.query_head_stride;
    for (int d = 0; d < c.key_dim; ++d) tile.query[size_t(r) * c.key_dim + d] = to_float(from[d]) * c.scaling;
    // A sink logit is a term of the softmax without a value.
    tile.top[r] = c.sink_logits ? c.sink_logits[head] : kMasked;
    tile.sum[r] = c.sink_logits ? 1.0f : 0.0f;
  }
}

template <class T>
void end_tile(const Call& c, Tile& tile, const Item& item) {
  T* out = static_cast<T*>(c.out);
  for (int r = 0; r < tile.rows; ++r) {
    const int head = item.kv_head * tile.group + r % tile.group;
    const int64_t token = c.cu_seqlens[item.sequence] + item.begin + r / tile.group;
    T* to = out + (token * c.heads + head) * c.value_dim;
    const float scale = tile.sum[r] > 0.0f ? 1.0f / tile.sum[r] : 0.0f;
    for (int d = 0; d < c.value_dim; ++d) from_float(tile.out[size_t(r) * c.value_dim + d] * scale, to[d]);
  }
}

// Attend to the positions begin .. end, which every query of the tile may see or must mask.
template <class T>
void attend_range(const Call& c, Tile& tile, const Item& item, int64_t begin, int64_t end) {
  const int64_t row = c.rows[item.sequence];
  const int32_t* key_row = c.key_table + row * c.key_table_width;
  const int32_t* value_row = c.value_table + row * c.value_table_width;
  const int64_t key_head = int64_t(c.key_dim) * c.block_tokens, value_head = int64_t(c.value_dim) * c.block_tokens;
  for (int64_t block = begin / c.block_tokens; block * c.block_tokens < end; ++block) {
    if (key_row[block] < 0 || value_row[block] < 0) continue;
    const int64_t key_page = key_row[block] * c.key_scale + c.key_offset;
    const int64_t value_page = value_row[block] * c.value_scale + c.value_offset;
    const T* key = static_cast<const T*>(c.key_pages) + (key_page * c.kv_heads + item.kv_head) * key_head;
    const T* value = static_cast<const T*>(c.value_pages) + (value_page * c.kv_heads + item.kv_head) * value_head;
    const int64_t base = block * c.block_tokens;
    const int from = int(std::max<int64_t>(0, begin - base));
    const int to = int(std::min<int64_t>(c.block_tokens, end - base));
    score_block(c, tile, key);
    for (int r = 0; r < tile.rows; ++r)
      fold_row(c, tile, r, c.starts[item.sequence] + item.begin + r / tile.group, base, from, to);
    mix_block(c, tile, value, from, to);
  }
}

template <class T>
void attend_item(const Call& c, Tile& tile, const Item& item) {
  begin_tile<T>(c, tile, item);
  const int64_t first = c.starts[item.sequence] + item.begin, last = c.starts[item.sequence] + item.end - 1;
  const int64_t low = c.window > 0 ? std::max<int64_t>(0, first - c.window + 1) : 0;
  attend_range<T>(c, tile, item, 0, std::min(c.sink_tokens, low));
  attend_range<T>(c, tile, item, low, last + 1);
  end_tile<T>(c, tile, item);
}

template <class T>
void write_token(const Call& c, int sequence, int64_t token) {
  const int64_t position = c.starts[sequence] + token - c.cu_seqlens[sequence];
  const int64_t block = position / c.block_tokens, place = position % c.block_tokens;
  const int32_t key_entry = c.key_table[c.rows[sequence] * c.key_table_width + block];
  const int32_t value_entry = c.value_table[c.rows[sequence] * c.value_table_width + block];
  const int64_t key_page = (key_entry * c.key_scale + c.key_offset) * c.kv_heads;
  const int64_t value_page = (value_entry * c.value_scale + c.value_offset) * c.kv_heads;
  for (int head = 0; head < c.kv_heads; ++head) {
    const T* key = static_cast<const T*>(c.key) + token * c.key_token_stride + head * c.key_head_stride;
    const T* value = static_cast<const T*>(c.value) + token * c.value_token_stride + head * c.value_head_stride;
    T* key_to = static_cast<T*>(c.key_pages) + (key_page + head) * c.key_dim * c.block_tokens + place;
    T* value_to = static_cast<T*>(c.value_pages) + ((value_page + head) * c.block_tokens + place) * c.value_dim;
    for (int d = 0; d < c.key_dim; ++d) key_to[int64_t(d) * c.block_tokens] = key[d];
    std::copy(value, value + c.value_dim, value_to);
  }
}

template <class T>
void write_all(const Call& c) {
#pragma omp parallel for num_threads(c.threads) schedule(static)
  for (int64_t token = 0; token < c.cu_seqlens[c.num_sequences]; ++token) {
    const int32_t* above = std::upper_bound(c.cu_seqlens, c.cu_seqlens + c.num_sequences + 1, int32_t(token));
    write_token<T>(c, int(above - c.cu_seqlens) - 1, token);
  }
}

template <class T>
void attend_all(const Call& c) {
  if (c.owns_pages) write_all<T>(c);
  const int tokens = std::max(1, kTileRows / (c.heads / c.kv_heads));
  std::vector<Item> items;
  for (int32_t s = 0; s < c.num_sequences; ++s) {
    const int32_t length = c.cu_seqlens[s + 1] - c.cu_seqlens[s];
    // Late tiles see the most keys: first, so that no thread ends on a long one.
    for (int32_t begin = (length - 1) / tokens * tokens; begin >= 0; begin -= tokens)
      for (int32_t head = 0; head < c.kv_heads; ++head)
        items.push_back({s, head, begin, std::min(length, begin + tokens)});
  }
#pragma omp parallel num_threads(c.threads)
  {
    Tile tile(c);
#pragma omp for schedule(dynamic, 1)
    for (size_t i = 0; i < items.size(); ++i) attend_item<T>(c, tile, items[i]);
  }
}

}  // namespace

extern "C" {
void tidegate_attend_f32(const Call* call) { attend_all<float>(*call); }
void tidegate_attend_bf16(const Call* call) { attend_all<bf16>(*call); }
}
