package edge

import (
	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// txnState says that a call of a transaction came out of turn.
type txnState struct {
	core.Invalid
	expected, actual string
}

// Code says that the state is wrong, not the request.
func (txnState) Code() errs.Code { return errs.WrongState }

// OutOfTurn refuses a call of a transaction that is in another state.
func OutOfTurn(expected, actual string) core.Fact {
	return txnState{
		Invalid:  core.Invalid{Field: "frame", Reason: "txn_state", Message: "the transaction is " + actual + ", not " + expected},
		expected: expected, actual: actual,
	}
}

// shownFailures bounds the bytes of further failures in an error, which may travel in a header.
const shownFailures = 4 * kib

// describeRefused tells the first failure of a transaction as the error itself, and as many others as
// fit.
func describeRefused(e *pb.Error, f core.RefRefused) {
	if len(f.Failures) == 0 {
		return
	}
	describeFailure(e, &f.Failures[0])
	if e.Details == nil {
		e.Details = map[string]string{}
	}
	if f.Repo != "" {
		e.Details["repo"] = f.Repo
	}
	left := shownFailures
	if len(f.Failures) == 1 {
		return
	}
	for i := range f.Failures {
		one := ShowFailure(&f.Failures[i])
		// About what it takes: a name may stand in the details twice.
		if left -= len(one.GetMessage()) + 2*len(f.Failures[i].Name) + len(f.Failures[i].Other) + 200; left < 0 {
			return
		}
		e.Failures = append(e.Failures, one)
	}
}

// WireFailure gives one failed change the shape of an error, whose op is its position.
func WireFailure(f *core.RefFailure) *pb.Error {
	refused := core.RefRefused{Failures: []core.RefFailure{*f}}
	e := &pb.Error{Code: RowOf(refused).code.String(), Message: core.Cut(f.Error(), messageBytes)}
	describeFailure(e, f)
	if f.Change >= 0 {
		op := int32(f.Change)
		e.Op = &op
	}
	return e
}

// ShowFailure shows one failed change among several.
func ShowFailure(f *core.RefFailure) *pb.Failure {
	e := WireFailure(f)
	return &pb.Failure{
		Change: int32(f.Change), Code: e.GetCode(), Reason: e.GetReason(), Message: e.GetMessage(), Details: e.GetDetails(),
	}
}

// describeFailure fills in reason, field and details.
func describeFailure(e *pb.Error, f *core.RefFailure) {
	e.Reason = f.Reason.String()
	d := map[string]string{}
	if f.Name != "" {
		d["name"] = core.Cut(f.Name, core.MaxRefName)
	}
	if f.Change >= 0 {
		e.Field = Item("changes", f.Change)
	}
	switch f.Reason {
	case core.RefMismatch:
		d["expected"], d["actual"] = f.Expected.String(), f.Actual.String()
		if f.Other != "" {
			d["target"] = f.Other
		}
	case core.RefObjectMissing:
		d["oid"] = f.Expected.String()
	case core.RefObjectNotCommit:
		d["oid"], d["type"] = f.Expected.String(), f.Type.String()
	case core.RefBadName, core.RefProtected:
		d["rule"] = f.Other
	case core.RefConflict:
		d["existing"], d["conflicting"] = f.Other, f.Name
	case core.RefTxnConflict:
		d["first"], d["second"] = f.Other, f.Name
	case core.RefScope:
		d["scope"] = f.Other
	case core.RefLimit:
		e.Limit = f.Other
	case core.RefExists:
		d["actual"] = f.Actual.String()
	}
	if len(d) > 0 {
		e.Details = d
	}
}
