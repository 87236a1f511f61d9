package commit

import "github.com/millrace/millrace/internal/core"

// drainMember has a member lead nothing, or lead again what it is at home with. Somebody is left who may lead.
func drainMember(d *core.Directory, who *core.Member, drained bool) (same bool, fact core.Fact) {
	switch {
	case who.State != core.MemberVoter && who.State != core.MemberLearner:
		return false, core.WrongMembership{Reason: who.State.String(), Node: who.Node}
	case who.Drained == drained:
		return true, nil
	case drained && who.State == core.MemberVoter && !anyOther(d, who.Replica):
		return false, core.WrongMembership{Reason: "nobody_leads", Node: who.Node}
	}
	who.Drained = drained
	return false, nil
}

// anyOther reports whether there is another voter that is not drained.
func anyOther(d *core.Directory, replica uint64) bool {
	for i := range d.Members {
		if m := &d.Members[i]; m.Replica != replica && m.State == core.MemberVoter && !m.Drained {
			return true
		}
	}
	return false
}
