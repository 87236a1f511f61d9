package api

import (
	"reflect"
	"testing"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/api/apitest"
	"github.com/millrace/millrace/internal/core"
)

func TestARulesetIsRemovedByItsNameInTheFirstPartition(t *testing.T) {
	r := wideRig(t, "", "", "", "")
	c := pb.NewSearchServiceClient(r.conn)
	for _, existed := range []bool{true, false} {
		r.n.Judge = func(core.Commit) core.Result { return core.Result{Ops: []core.OpResult{{Existed: existed}}} }
		got, err := c.DeleteRuleset(apitest.As("acme/all"), &pb.DeleteRulesetRequest{Ruleset: "staffing"})
		if err != nil || got.GetExisted() != existed || got.GetAt().GetIndex() == 0 {
			t.Errorf("%v, %v", got, err)
		}
	}
	proposed := r.n.Proposed()
	if len(proposed) != 2 {
		t.Fatalf("proposed: %+v", proposed)
	}
	for _, one := range proposed {
		if want := []core.Op{&core.RulesetDelete{Name: "staffing"}}; one.Partition.Index != 0 || !reflect.DeepEqual(one.Ops, want) {
			t.Errorf("proposed %+v", one)
		}
	}
	for _, name := range []string{"", "-", "staffing@0", "staffing@7", "a b"} {
		_, err := c.DeleteRuleset(apitest.As("acme/all"), &pb.DeleteRulesetRequest{Ruleset: name})
		if e := apitest.ErrorOf(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetField() != "ruleset" {
			t.Errorf("%q: %v", name, e)
		}
	}
	if n := len(r.n.Proposed()); n != 2 {
		t.Errorf("%d commits were proposed", n)
	}
}

func TestRulesetsAreRemovedOnlyWhereTheFormatOfTheClusterSaysSo(t *testing.T) {
	r := wideRig(t, "", "", "", "")
	r.n.EntryFormat = core.FormatFirst
	_, err := pb.NewSearchServiceClient(r.conn).DeleteRuleset(apitest.As("acme/all"), &pb.DeleteRulesetRequest{Ruleset: "staffing"})
	if e := apitest.ErrorOf(t, err); e.GetCode() != "INVALID_ARGUMENT" || e.GetReason() != "not_supported" || len(r.n.Proposed()) != 0 {
		t.Errorf("got %v", e)
	}
}
