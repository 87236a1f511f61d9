package check

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/millrace/millrace/internal/core"
)

// requestCommit answers a repeat of a request id as the first time, and remembers what was applied.
func (m *Model) requestCommit(p *part, c *core.Commit, got *core.Result) error {
	old, known := p.requests[c.RequestID]
	mayForget := known && m.stamp >= old.at.Add(keepRequest)
	if known && got.Replayed {
		return sameAnswer("request", &old.result, got, old.index)
	}
	if exhausted(got, "request_ids", len(p.requests)) {
		return nil
	}
	if f := refusal[core.AlreadyExists](got); known && f != nil && f.Kind == "request" && !reflect.DeepEqual(old.commit, *c) {
		return nil
	}
	if known && !mayForget {
		return fmt.Errorf("request id was applied at index %d and is not answered as a replay: %s", old.index, describe(got))
	}
	if err := m.judge(p, c, got); err != nil {
		return err
	}
	if got.Refusal == nil {
		p.requests[c.RequestID] = request{*c, *got, m.index, m.stamp}
	}
	return nil
}

// sessionCommit answers a repeated sequence number as the first time; refusals take a number too. A session that was
// quiet for long may be there or forgotten, and then only its number 1 begins it again: every way to stand that explains
// the answer is kept.
func (m *Model) sessionCommit(p *part, c *core.Commit, got *core.Result) error {
	may := p.sessions[c.Session]
	if len(may) == 0 {
		may = []session{{}}
	}
	for _, s := range may {
		if s.last > 0 && m.stamp >= s.seen.Add(keepSession) {
			may = append(slices.Clone(may), session{})
			break
		}
	}
	var next []session
	var fail, judged error
	tried, repeated := false, false
	for _, s := range may {
		after, asNew, err := m.sessionStep(p, s, c, got)
		if asNew { // the commit is judged once for all states of the session
			if !tried {
				tried = true
				if judged = m.judge(p, c, got); judged != nil {
					m.rollback()
				}
			}
			err = judged
		}
		if err != nil {
			fail = err
			continue
		}
		repeated = repeated || !asNew
		next = append(next, after)
	}
	if len(next) == 0 {
		return fail
	}
	if tried && judged == nil && repeated && len(m.undo) > 0 {
		m.eitherWay(p)
	}
	p.sessions[c.Session] = next
	return nil
}

// eitherWay is for an answer that may be to the commit at hand or to an earlier one that it repeats: what follows from it for
// tasks in the first case need not hold, nor what it did to them. Keys are as they were: such an answer wrote none.
func (m *Model) eitherWay(p *part) {
	after := make(map[core.TaskID][]standing)
	for id, t := range p.tasks {
		after[id] = t.may
	}
	m.rollback()
	for id, t := range p.tasks {
		both := slices.Clone(t.may)
		for _, s := range after[id] {
			if !slices.Contains(both, s) {
				both = append(both, s)
			}
		}
		if len(both) > len(t.may) {
			m.stand(p, t, both)
		}
	}
}

// sessionStep tells where a session stands after an answer; asNew: if the commit, judged as a new one, explains it.
func (m *Model) sessionStep(p *part, s session, c *core.Commit, got *core.Result) (after session, asNew bool, err error) {
	old, kept := s.answers[c.Seq]
	switch {
	case s.last == 0 && c.Seq > 1 || c.Seq <= s.last && !kept:
		if refusal[core.SessionExpired](got) == nil {
			err = fmt.Errorf("commit_seq %d of a session at %d is not known any more: %s", c.Seq, s.last, describe(got))
		}
		return s, false, err
	case s.last == 0 && exhausted(got, "sessions", len(p.sessions)):
		return s, false, nil
	case c.Seq > s.last+1:
		if f := refusal[core.Invalid](got); f == nil || f.Field != "commit_seq" {
			err = fmt.Errorf("commit_seq %d after %d: %s", c.Seq, s.last, describe(got))
		}
		return s, false, err // a frame that was not taken keeps no session alive
	case kept:
		s.seen = m.stamp
		return s, false, sameAnswer("commit_seq", &old, got, 0)
	}
	answers := maps.Clone(s.answers)
	if answers == nil {
		answers = map[uint64]core.Result{}
	}
	answers[c.Seq] = *got
	delete(answers, c.Seq-keepAnswers)
	return session{last: c.Seq, seen: m.stamp, answers: answers}, true, nil
}

func sameAnswer(by string, old, got *core.Result, index uint64) error {
	if !reflect.DeepEqual(factOf(old), factOf(got)) {
		return fmt.Errorf("repeated %s: first %s, now %s", by, describe(old), describe(got))
	}
	if got.Refusal == nil && !got.Replayed {
		return fmt.Errorf("repeated %s is not marked as a replay", by)
	}
	if index != 0 && got.Index != index {
		return fmt.Errorf("repeated %s answers index %d, first was %d", by, got.Index, index)
	}
	if got.Refusal == nil && !reflect.DeepEqual(normal(old.Ops), normal(got.Ops)) {
		return fmt.Errorf("repeated %s answers %+v, first %+v", by, got.Ops, old.Ops)
	}
	return nil
}

// normal drops the difference between nil and empty bytes, which an encoding does not keep.
func normal(ops []core.OpResult) []core.OpResult {
	out := append([]core.OpResult{}, ops...)
	for i := range out {
		if len(out[i].Prev) == 0 {
			out[i].Prev = nil
		}
	}
	return out
}
