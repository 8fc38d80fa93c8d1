/* CTC prefix beam search with a language model (decoding/beam.py says what it computes), a line a task. */
#include "common.h"

struct beam {
    const float *log_probs; /* [B, L, K]: of each frame's candidates, likeliest first; -inf where there are no more */
    const int32_t *labels; /* [B, L, K] */
    const int32_t *lengths; /* [B] */
    const int32_t *tokens; /* [V]: the model's token of each label; no model where absent */
    const int32_t *first_arc, *backoff_state, *to; /* the automaton (decoding/language_model.py) */
    const uint16_t *arc_label;
    const float *arc_log_prob, *backoff;
    const double *settings; /* weight of the model, bonus for each character; what `judge` goes by */
    int32_t *texts, *text_lengths; /* [B, best, L], [B, best]; -1 where there is no such text */
    double *scores; /* [B, best, 2]: rank, and log-probability of the text */
    int32_t *spans; /* [B, L, 3]: of each character of the best text, its frames [start, end) and the clearest of them */
    double *log_weights; /* [B, L, K]: of each candidate of that frame */
    int32_t *frame_labels; /* [B, L, K]: those candidates */
    float *frame_log_probs; /* [B, L, K] */
    int64_t *chosen; /* [B, L]: the character's place among them */
    double *confidences; /* [B, L]: that it is right */
    int32_t *other_counts, *other_labels; /* [B, L], [B, L, K]: what else it may be, likeliest first */
    double *other_shares; /* [B, L, K] */
    int lines, frames, candidates, beam, best, sums, start, reach; /* reach: characters the model looks back */
};

struct node { /* a prefix that was kept once; children hang together as a list */
    double lm, blank, last, next_blank, next_last, rank;
    int parent, label, state, length, child, sibling, active;
};

struct option { /* what may be kept after this frame: a node that is there, or one more label after it */
    double rank, last, lm;
    int node, label, state; /* label: -1 for the node itself */
};

#define NEVER (-HUGE_VAL)

static double log_add(double a, double b, int sums) {
    double high = a > b ? a : b, low = a > b ? b : a;
    return !sums || low == NEVER ? high : high + log1p(exp(low - high));
}

/* The log-probability of a token in a state; the state becomes the one after it. */
static double step_token(const struct beam *b, int token, int *state) {
    double total = 0.0;
    for (int now = *state;; now = b->backoff_state[now]) {
        int low = b->first_arc[now], end = b->first_arc[now + 1], high = end;
        if (!now) low = high = token; /* the empty context has them all */
        while (low < high) {
            int middle = (low + high) / 2;
            if (b->arc_label[middle] < token) low = middle + 1;
            else high = middle;
        }
        if (low < end && b->arc_label[low] == token) {
            *state = b->to[low];
            return total + b->arc_log_prob[low];
        }
        total += b->backoff[now];
    }
}

static double step_label(const struct beam *b, int label, int *state) {
    return b->tokens ? step_token(b, b->tokens[label], state) : 0.0;
}

static double end_of_line(const struct beam *b, int state) { return b->tokens ? step_token(b, 0, &state) : 0.0; }

struct work { /* of one line */
    const struct beam *b;
    const float *log_probs;
    const int32_t *labels;
    struct node *nodes;
    struct option *options;
    int *order; /* the options that stay, best first */
    int *active, *fresh; /* nodes in the beam, best first */
    double *align; /* [2, 2 L + 1] */
    unsigned char *moves; /* [L, 2 L + 1] */
    int length, node_count, active_count;
};

static double candidate(const struct work *w, int frame, int label) {
    int k = w->b->candidates;
    const float *log_probs = w->log_probs + (size_t)frame * k;
    const int32_t *labels = w->labels + (size_t)frame * k;
    for (int i = 0; i < k && log_probs[i] > NEVER; i++)
        if (labels[i] == label) return log_probs[i];
    return NEVER;
}

static int child_of(const struct work *w, int node, int label) {
    int child = w->nodes[node].child;
    while (child >= 0 && w->nodes[child].label != label) child = w->nodes[child].sibling;
    return child;
}

/* Puts an option in its place among those that stay; of equals the one that came first stands first. */
static int keep_option(struct work *w, int kept, int option) {
    double rank = w->options[option].rank;
    if (!(rank > NEVER) || (kept == w->b->beam && rank <= w->options[w->order[kept - 1]].rank)) return kept;
    int place = kept < w->b->beam ? kept++ : kept - 1;
    for (; place && w->options[w->order[place - 1]].rank < rank; place--) w->order[place] = w->order[place - 1];
    w->order[place] = option;
    return kept;
}

static double rank_of(const struct beam *b, double blank, double last, double lm, int length) {
    return log_add(blank, last, b->sums) + b->settings[0] * lm + b->settings[1] * length;
}

static void advance(struct work *w, int frame) {
    const struct beam *b = w->b;
    int k = b->candidates, count = 0, kept = 0;
    const float *log_probs = w->log_probs + (size_t)frame * k;
    const int32_t *labels = w->labels + (size_t)frame * k;
    double blank = candidate(w, frame, 0);
    for (int i = 0; i < w->active_count; i++) {
        struct node *n = &w->nodes[w->active[i]];
        n->next_blank = log_add(n->blank, n->last, b->sums) + blank;
        n->next_last = n->label < 0 ? NEVER : n->last + candidate(w, frame, n->label);
        w->options[count++] = (struct option){.node = w->active[i], .label = -1};
    }
    for (int i = 0; i < w->active_count; i++) {
        int index = w->active[i];
        const struct node *n = &w->nodes[index];
        double both = log_add(n->blank, n->last, b->sums);
        for (int c = 0; c < k && log_probs[c] > NEVER; c++) {
            int label = labels[c];
            double before = label == n->label ? n->blank : both; /* the same again begins anew after a blank only */
            if (!label || before == NEVER) continue;
            int child = child_of(w, index, label);
            if (child >= 0 && w->nodes[child].active) {
                w->nodes[child].next_last = log_add(w->nodes[child].next_last, before + log_probs[c], b->sums);
                continue;
            }
            struct option *o = &w->options[count++];
            *o = (struct option){.node = index, .label = label, .state = n->state, .last = before + log_probs[c]};
            o->lm = n->lm + step_label(b, label, &o->state);
            o->rank = rank_of(b, NEVER, o->last, o->lm, n->length + 1);
        }
    }
    for (int i = 0; i < count; i++) {
        struct option *o = &w->options[i];
        if (o->label < 0) {
            const struct node *n = &w->nodes[o->node];
            o->rank = rank_of(b, n->next_blank, n->next_last, n->lm, n->length);
        }
        kept = keep_option(w, kept, i);
    }
    for (int i = 0; i < w->active_count; i++) w->nodes[w->active[i]].active = 0;
    for (int i = 0; i < kept; i++) {
        const struct option *o = &w->options[w->order[i]];
        int index = o->label < 0 ? o->node : child_of(w, o->node, o->label);
        if (index < 0) { /* a prefix that was never kept before */
            index = w->node_count++;
            struct node *parent = &w->nodes[o->node];
            w->nodes[index] = (struct node){.lm = o->lm, .parent = o->node, .label = o->label, .state = o->state,
                                            .length = parent->length + 1, .child = -1, .sibling = parent->child};
            parent->child = index;
        }
        struct node *n = &w->nodes[index];
        n->blank = o->label < 0 ? n->next_blank : NEVER;
        n->last = o->label < 0 ? n->next_last : o->last;
        n->active = 1;
        w->fresh[i] = index;
    }
    int *swap = w->active;
    w->active = w->fresh, w->fresh = swap;
    w->active_count = kept;
}

static void write_texts(struct work *w, int line) {
    const struct beam *b = w->b;
    for (int i = 0; i < w->active_count; i++) {
        struct node *n = &w->nodes[w->active[i]];
        double rank = rank_of(b, n->blank, n->last, n->lm, n->length) + b->settings[0] * end_of_line(b, n->state);
        n->rank = rank;
        int place = i;
        for (; place && w->nodes[w->fresh[place - 1]].rank < rank; place--) w->fresh[place] = w->fresh[place - 1];
        w->fresh[place] = w->active[i];
    }
    for (int i = 0; i < b->best; i++) {
        size_t at = (size_t)line * b->best + i;
        b->text_lengths[at] = -1;
        if (i >= w->active_count) continue;
        const struct node *n = &w->nodes[w->fresh[i]];
        b->text_lengths[at] = n->length;
        b->scores[2 * at] = n->rank, b->scores[2 * at + 1] = log_add(n->blank, n->last, b->sums);
        int32_t *text = b->texts + at * b->frames;
        for (int place = n->length - 1; place >= 0; place--, n = &w->nodes[n->parent]) text[place] = n->label;
    }
}

/* The best alignment of the text: the frames of each character. Places 0, 2, 4, ... are blanks. */
static void align(struct work *w, const int32_t *text, int characters, int32_t *spans) {
    int places = 2 * characters + 1, room = 2 * w->b->frames + 1;
    double *scores = w->align, *before = scores + room;
    for (int p = 0; p < places; p++) before[p] = NEVER;
    for (int t = 0; t < w->length; t++) {
        unsigned char *move = w->moves + (size_t)t * room;
        double blank = candidate(w, t, 0);
        for (int p = 0; p < places; p++) {
            double stay = t ? before[p] : p ? NEVER : 0.0, one = p ? t ? before[p - 1] : p > 1 ? NEVER : 0.0 : NEVER;
            move[p] = 0;
            if (one > stay) stay = one, move[p] = 1;
            if (p >= 3 && p % 2 && text[p / 2] != text[p / 2 - 1] && before[p - 2] > stay) stay = before[p - 2], move[p] = 2;
            scores[p] = stay == NEVER ? NEVER : stay + (p % 2 ? candidate(w, t, text[p / 2]) : blank);
        }
        double *swap = scores;
        scores = before, before = swap;
    }
    int place = places - 1;
    if (place && before[place - 1] > before[place]) place--;
    for (int i = 0; i < characters; i++) spans[3 * i + 1] = 0;
    for (int t = w->length - 1; t >= 0; t--) {
        if (place % 2) {
            int32_t *span = spans + 3 * (place / 2);
            double here = candidate(w, t, text[place / 2]);
            if (!span[1]) span[1] = t + 1, span[2] = t;
            else if (here >= candidate(w, span[2], text[place / 2])) span[2] = t; /* the first of the clearest */
            span[0] = t;
        }
        place -= w->moves[(size_t)t * room + place];
    }
}

/* What else each character could be, the others as they are. */
static void weigh(const struct work *w, const int32_t *text, int characters, const int32_t *spans, double *log_weights) {
    const struct beam *b = w->b;
    int k = b->candidates, state = b->start;
    for (int place = 0; place < characters; place++) {
        int frame = spans[3 * place + 2], last = least(characters, place + 1 + b->reach);
        for (int c = 0; c < k; c++) {
            double log_prob = w->log_probs[(size_t)frame * k + c], cost = 0.0;
            int label = w->labels[(size_t)frame * k + c], after = state;
            if (!(log_prob > NEVER)) {
                log_weights[(size_t)place * k + c] = NEVER;
                continue;
            }
            if (b->tokens) {
                if (label) cost = step_label(b, label, &after);
                for (int next = place + 1; next < last; next++) cost += step_label(b, text[next], &after);
                if (place + 1 + b->reach > characters) cost += end_of_line(b, after);
            }
            log_weights[(size_t)place * k + c] = log_prob + b->settings[0] * cost + (label ? b->settings[1] : 0.0);
        }
        step_label(b, text[place], &state);
    }
}

enum { WEIGHT, BONUS, SEARCH, FRAME, AROUND_IT, BIAS, SHARE }; /* settings; from the third: decoding/confidence.py */
enum { AROUND = 4 };
static const double MOST_ODDS = 10.0, NOTHING = 1e-12;

static double clipped(double odds) { return odds < -MOST_ODDS ? -MOST_ODDS : odds > MOST_ODDS ? MOST_ODDS : odds; }

/* How sure each character is, and what else it may be: decoding/confidence.py says why so. `odds` has room for as many. */
static void judge(const struct beam *b, const int32_t *text, int characters, size_t first, double *odds) {
    int k = b->candidates;
    for (int place = 0; place < characters; place++) { /* `confidences` holds what is known of each alone until all are */
        size_t at = first + place;
        const double *weights = b->log_weights + at * k;
        const int32_t *labels = b->frame_labels + at * k;
        int chosen = 0;
        for (int c = k - 1; c >= 0; c--) if (labels[c] == text[place]) chosen = c;
        double highest = weights[chosen] - 2 * MOST_ODDS, rest = 0.0;
        for (int c = 0; c < k; c++) if (c != chosen && weights[c] > highest) highest = weights[c];
        for (int c = 0; c < k; c++) if (c != chosen) rest += exp(weights[c] - highest);
        double search = clipped(weights[chosen] - highest - log(rest > NOTHING ? rest : NOTHING));
        double sure = b->frame_log_probs[at * k + chosen];
        if (sure > -NOTHING) sure = -NOTHING;
        double frame = clipped(sure - log(-expm1(sure)));
        b->chosen[at] = chosen;
        odds[place] = (search + frame) / 2;
        b->confidences[at] = b->settings[SEARCH] * search + b->settings[FRAME] * frame;
    }
    for (int place = 0; place < characters; place++) {
        size_t at = first + place;
        double total = odds[place];
        int count = 1;
        for (int shift = 1; shift <= AROUND; shift++) {
            if (place >= shift) total += odds[place - shift], count++;
            if (place + shift < characters) total += odds[place + shift], count++;
        }
        double all = b->confidences[at] + b->settings[AROUND_IT] * (total / count) + b->settings[BIAS];
        double sure = b->confidences[at] = 1 / (1 + exp(-all)), others = 0.0;
        const double *weights = b->log_weights + at * k;
        double *shares = b->other_shares + at * k, highest = weights[0];
        int32_t *labels = b->other_labels + at * k;
        for (int c = 1; c < k; c++) if (weights[c] > highest) highest = weights[c];
        for (int c = 0; c < k; c++) if (c != b->chosen[at]) others += exp(weights[c] - highest);
        int kept = 0;
        for (int c = 0; c < k && others > 0.0; c++) { /* they share what is left of 1 */
            double share = c == b->chosen[at] ? 0.0 : exp(weights[c] - highest) * (1 - sure) / others;
            if (share < b->settings[SHARE]) continue;
            int to = kept++; /* never beyond c, and what stood there was looked at */
            for (; to && shares[to - 1] < share; to--) shares[to] = shares[to - 1], labels[to] = labels[to - 1];
            shares[to] = share, labels[to] = b->frame_labels[at * k + c];
        }
        b->other_counts[at] = kept;
    }
}

static void beam_task(const void *arg, int line) {
    const struct beam *b = arg;
    size_t frames = b->frames, beam = b->beam, k = b->candidates, places = 2 * frames + 1;
    size_t nodes = frames * beam + 1, options = beam * (k + 1);
    struct work w = {.b = b, .length = b->lengths[line]};
    w.log_probs = b->log_probs + line * frames * k, w.labels = b->labels + line * frames * k;
    w.nodes = scratch(nodes * sizeof(struct node) + options * sizeof(struct option) + 2 * places * sizeof(double) +
                      3 * beam * sizeof(int) + frames * places);
    w.options = (struct option *)(w.nodes + nodes);
    w.align = (double *)(w.options + options);
    w.order = (int *)(w.align + 2 * places);
    w.active = w.order + beam, w.fresh = w.active + beam;
    w.moves = (unsigned char *)(w.fresh + beam);
    w.nodes[0] = (struct node){.last = NEVER, .parent = -1, .label = -1, .state = b->start, .child = -1, .sibling = -1, .active = 1};
    w.active[0] = 0, w.active_count = w.node_count = 1;
    for (int t = 0; t < w.length; t++) advance(&w, t);
    write_texts(&w, line);
    size_t first = (size_t)line * b->best;
    int32_t *text = b->texts + first * frames, *spans = b->spans + 3 * line * frames;
    int characters = b->text_lengths[first];
    if (characters <= 0) return;
    align(&w, text, characters, spans);
    weigh(&w, text, characters, spans, b->log_weights + line * frames * k);
    for (int place = 0; place < characters; place++) {
        size_t from = (size_t)spans[3 * place + 2] * k, to = (line * frames + place) * k;
        memcpy(b->frame_labels + to, w.labels + from, k * sizeof *w.labels);
        memcpy(b->frame_log_probs + to, w.log_probs + from, k * sizeof *w.log_probs);
    }
    judge(b, text, characters, line * frames, w.align);
}

ENDS(beam, reach)
API void spikehtr_beam(const struct beam *b) { run_tasks(beam_task, b, b->lines); }
