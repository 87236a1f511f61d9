package check

import (
	"maps"
	"slices"
)

// Registers judges keys that one client each writes, one call at a time, with values that never repeat: a read sees the
// last write that was acknowledged before it began, or one that was under way or unknown since. Writes are OpPut, reads
// OpKVGet, named by Key and judged within one clock; an absent key reads as "". final is what the keys hold at the end.
// Rules: stale_read, lost_write, never_written, of_refused.
func Registers(calls []Call, final map[string]string) *Report {
	r := NewReport("registers")
	byKey := map[string][]*Call{}
	for i := range calls {
		if c := &calls[i]; c.Key != "" && (c.Op == OpPut || c.Op == OpKVGet) {
			byKey[c.Key] = append(byKey[c.Key], c)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		judgeRegister(r, key, byKey[key], final[key])
	}
	return r.Done()
}

func judgeRegister(r *Report, key string, calls []*Call, final string) {
	var writes []*Call
	for _, c := range calls {
		if c.Op == OpPut {
			writes = append(writes, c)
		}
	}
	slices.SortStableFunc(writes, func(a, b *Call) int { return int(a.Invoke - b.Invoke) })
	for _, c := range calls {
		if c.Op != OpKVGet || c.Outcome != OK {
			continue
		}
		r.Checked++
		if rule := explainRead(writes, c.Value, c.Invoke, c.Return); rule != "" {
			r.Violate(rule, "key %s: %s read %q", key, c, c.Value)
		}
	}
	if len(writes) > 0 {
		r.Checked++
		switch rule := explainRead(writes, final, endOfTime, endOfTime); rule {
		case "":
		case "stale_read":
			r.Violate("lost_write", "key %s holds %q at the end", key, final)
		default:
			r.Violate(rule, "key %s holds %q at the end", key, final)
		}
	}
}

const endOfTime = int64(1) << 62

// explainRead finds which rule a read of value breaks, if any. writes are in the order of their start; they do not
// overlap, but one that ended unknown may take effect at any later time.
func explainRead(writes []*Call, value string, begin, end int64) string {
	last := -1 // the newest write acknowledged before the read began
	found := -1
	for i, w := range writes {
		if w.Outcome == OK && w.Return < begin {
			last = i
		}
		if w.Value == value && w.Invoke <= end {
			found = i
		}
	}
	switch {
	case found < 0 && value == "" && last < 0:
		return ""
	case found < 0 && value == "":
		return "stale_read"
	case found < 0:
		return "never_written"
	case writes[found].Outcome == Refused:
		return "of_refused"
	case found < last && writes[found].Outcome == OK: // an unknown one may take effect late
		return "stale_read"
	}
	return ""
}
