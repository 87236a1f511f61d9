package core

import (
	"slices"
	"testing"
)

// Groups of several partitions add up. The last message and the last tasks are those of the partition that saw the error last.
func TestGroupsOfErrorsAddUp(t *testing.T) {
	id := func(n byte) TaskID { return TaskID{n} }
	of := func(count uint64, first, last ShardTime, message string, sample ...TaskID) ErrorGroup {
		g := ErrorGroup{Queue: "mail", Fingerprint: 7, Count: count, First: first, Last: last, Message: message, Sample: sample}
		g.Trend[23] = count
		return g
	}
	a := of(3, 10, 20, "a", id(1), id(2), id(3))
	b := of(4, 5, 30, "b", id(4), id(5), id(6), id(7))
	both, other := a, b
	both.Merge(&b)
	other.Merge(&a)
	want := []TaskID{id(4), id(5), id(6), id(7), id(1)}
	for _, g := range []ErrorGroup{both, other} {
		if g.Count != 7 || g.First != 5 || g.Last != 30 || g.Message != "b" || g.Trend[23] != 7 || !slices.Equal(g.Sample, want) {
			t.Errorf("they add up to %+v", g)
		}
	}
}

// An answer has the groups with the most errors, and says when there are more.
func TestAnAnswerHasTheLargestGroupsOfErrors(t *testing.T) {
	var p ErrorPage
	for i := range MaxErrorsListed + 1 {
		p.Groups = append(p.Groups, ErrorGroup{Fingerprint: Fingerprint(i + 1), Count: uint64(i)})
	}
	p.Cut()
	if len(p.Groups) != MaxErrorsListed || !p.More || p.Groups[0].Count != MaxErrorsListed || p.Groups[MaxErrorsListed-1].Count != 1 {
		t.Errorf("%d groups, more %v, from %d to %d", len(p.Groups), p.More, p.Groups[0].Count, p.Groups[len(p.Groups)-1].Count)
	}
}
