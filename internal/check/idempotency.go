package check

import (
	"cmp"
	"maps"
	"slices"
)

// keyName is what makes a create repeatable: a unique key in its scope.
type keyName struct{ tenant, queue, key string }

type keyHistory struct {
	answers   map[string]bool // ids that acknowledged creates were answered with
	made      int             // acknowledged creates that were no replay
	attempted bool            // some create is not known to be refused
}

// Idempotency judges creates that were repeated under a unique key: one id per tenant, queue and key, never another
// tenant's. Creates need Tenant, Key and, when acknowledged, Answer; final is the read-back of all tenants. Rules:
// two_answers, made_twice, two_tasks, answer_absent, none_created, foreign. Counts: keys, replays.
func Idempotency(calls []Call, final []TaskState) *Report {
	r := NewReport("idempotency")
	keys := map[keyName]*keyHistory{}
	answeredTo := map[string]string{} // task id → tenant
	for i := range calls {
		c := &calls[i]
		if c.Op != OpCreate || c.Key == "" {
			continue
		}
		r.Checked++
		k := keyName{c.Tenant, c.Queue, c.Key}
		h := keys[k]
		if h == nil {
			h = &keyHistory{answers: map[string]bool{}}
			keys[k] = h
		}
		h.attempted = h.attempted || c.Outcome != Refused
		if c.Outcome != OK {
			continue
		}
		h.answers[c.Answer] = true
		if c.Replayed {
			r.Counts["replays"]++
		} else {
			h.made++
		}
		if tenant, ok := answeredTo[c.Answer]; ok && tenant != c.Tenant {
			r.Violate("foreign", "task %s was the answer to tenant %s and to tenant %s", c.Answer, tenant, c.Tenant)
		}
		answeredTo[c.Answer] = c.Tenant
	}
	held := map[keyName][]string{}
	owner := map[string]string{}
	for _, t := range final {
		owner[t.ID] = t.Tenant
		if t.Unique != "" {
			k := keyName{t.Tenant, t.Queue, t.Unique}
			held[k] = append(held[k], t.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(answeredTo)) {
		if tenant, ok := owner[id]; ok && tenant != answeredTo[id] {
			r.Violate("foreign", "tenant %s was answered with task %s of tenant %s", answeredTo[id], id, tenant)
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(keys), compareKeys) {
		r.Counts["keys"]++
		judgeKey(r, k, keys[k], held[k])
	}
	return r.Done()
}

func compareKeys(a, b keyName) int {
	return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.queue, b.queue), cmp.Compare(a.key, b.key))
}

func judgeKey(r *Report, k keyName, h *keyHistory, held []string) {
	name := k.tenant + "/" + k.queue + "/" + k.key
	if len(h.answers) > 1 {
		r.Violate("two_answers", "key %s was answered with %v", name, slices.Sorted(maps.Keys(h.answers)))
	}
	if h.made > 1 {
		r.Violate("made_twice", "key %s: %d creates were acknowledged as no replay", name, h.made)
	}
	if len(held) > 1 {
		r.Violate("two_tasks", "key %s holds %v", name, held)
	}
	for _, id := range slices.Sorted(maps.Keys(h.answers)) {
		if !slices.Contains(held, id) {
			r.Violate("answer_absent", "key %s was answered with %s, which does not hold it", name, id)
		}
	}
	if !h.attempted && len(held) > 0 {
		r.Violate("none_created", "key %s: every create was refused, task %s is there", name, held[0])
	}
}

// RequestsOnce judges commits, with a fence or without, that were repeated under a request id, each with an effect that shows how often
// it was applied: effects counts it by request id. Rules: effect_lost, effect_repeated, effect_of_refused, two_indexes
// (repeats were acknowledged at different places in the log). Counts: requests, repeats, recovered.
func RequestsOnce(calls []Call, effects map[string]int) *Report {
	r := NewReport("requests_once")
	ends := map[string]Outcome{}
	index := map[string]uint64{}
	for i := range calls {
		c := &calls[i]
		if c.RequestID == "" || c.Op != OpCommit {
			continue
		}
		r.Checked++
		if _, again := ends[c.RequestID]; again {
			r.Counts["repeats"]++
		}
		ends[c.RequestID] = stronger(ends[c.RequestID], c.Outcome)
		if c.Outcome != OK || c.Index == 0 {
			continue
		}
		if at, ok := index[c.RequestID]; ok && at != c.Index {
			r.Violate("two_indexes", "request %s was acknowledged at index %d and at %d", c.RequestID, at, c.Index)
		}
		index[c.RequestID] = c.Index
	}
	for _, id := range slices.Sorted(maps.Keys(ends)) {
		r.Counts["requests"]++
		switch n, end := effects[id], ends[id]; {
		case n > 1:
			r.Violate("effect_repeated", "request %s was applied %d times", id, n)
		case n == 0 && end == OK:
			r.Violate("effect_lost", "request %s was acknowledged, its effect is absent", id)
		case n == 1 && end == Refused:
			r.Violate("effect_of_refused", "request %s was refused, its effect is there", id)
		case n == 1 && end == Unknown:
			r.Counts["recovered"]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(effects)) {
		if _, ok := ends[id]; !ok && effects[id] > 0 {
			r.Violate("effect_repeated", "request %s left an effect, but no client made it", id)
		}
	}
	return r.Done()
}
