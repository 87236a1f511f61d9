package core

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/errs"
)

// RefRefused says why a transaction of refs, or a change of a repository, was refused: at least one failure, at most
// MaxRefFailures, in order of their changes. The first decides the code.
type RefRefused struct {
	// The name of the repository, as the caller gave it.
	Repo     string
	Failures []RefFailure
}

// Code is that of the class of the first failure.
func (e RefRefused) Code() errs.Code {
	switch e.Class() {
	case RefClassPrecondition:
		return errs.PreconditionFailed
	case RefClassExists:
		return errs.AlreadyExists
	case RefClassNotFound:
		return errs.NotFound
	case RefClassDenied:
		return errs.PermissionDenied
	case RefClassUnavailable:
		return errs.Unavailable
	case RefClassExhausted:
		return errs.ResourceExhausted
	}
	return errs.InvalidArgument
}

func (e RefRefused) Error() string {
	if len(e.Failures) == 0 {
		return "refused"
	}
	s := e.Failures[0].Error()
	if more := len(e.Failures) - 1; more > 0 {
		s += fmt.Sprintf(" (and %d more)", more)
	}
	return s
}

// refReasons holds the names of the reasons, as the contract has them.
var refReasons = [...]string{
	RefMismatch: "ref_mismatch", RefObjectMissing: "object_missing", RefObjectNotCommit: "object_not_commit",
	RefNotSymbolic: "ref_not_symbolic", RefSymrefDepth: "symref_depth", RefRepoReadOnly: "repo_read_only",
	RefExists: "ref_exists", RefNotFound: "ref_not_found", RefBadName: "ref_name", RefConflict: "ref_conflict",
	RefTxnConflict: "txn_conflict", RefDuplicate: "ref_duplicate", RefProtected: "ref_protected", RefHidden: "ref_hidden",
	RefRepoNotFound: "repo_not_found", RefRepoExists: "repo_exists", RefPackExpired: "pack_unavailable",
	RefCheckStale: "check_stale", RefScope: "scope", RefLimit: "limit",
}

// String returns the reason's name in the contract.
func (r RefReason) String() string {
	if r == 0 || int(r) >= len(refReasons) {
		return "unknown"
	}
	return refReasons[r]
}

// Error says what happened to which ref.
func (f RefFailure) Error() string {
	var b strings.Builder
	if f.Name != "" {
		fmt.Fprintf(&b, "%q: ", f.Name)
	}
	switch f.Reason {
	case RefMismatch:
		if f.Other != "" {
			fmt.Fprintf(&b, "points to %q", f.Other)
		} else {
			fmt.Fprintf(&b, "is at %s but expected %s", f.Actual, f.Expected)
		}
	case RefObjectMissing:
		fmt.Fprintf(&b, "object %s is missing", f.Expected)
	case RefObjectNotCommit:
		fmt.Fprintf(&b, "object %s is a %s, no commit", f.Expected, f.Type)
	case RefNotSymbolic:
		b.WriteString("is not a symbolic ref")
	case RefSymrefDepth:
		b.WriteString("symbolic refs point to each other too often")
	case RefRepoReadOnly:
		b.WriteString("the repository is read-only")
	case RefExists:
		b.WriteString("reference already exists")
	case RefNotFound:
		b.WriteString("reference does not exist")
	case RefBadName:
		b.WriteString("no name of a ref: " + f.Other)
	case RefConflict, RefTxnConflict:
		if dir, ok := strings.CutSuffix(f.Other, "/"); ok {
			fmt.Fprintf(&b, "cannot be made: refs exist below %q", dir)
			break
		}
		fmt.Fprintf(&b, "conflicts with %q", f.Other)
	case RefDuplicate:
		b.WriteString("is named twice in one transaction")
	case RefProtected:
		b.WriteString("protected by " + f.Other)
	case RefHidden:
		b.WriteString("hidden")
	case RefRepoNotFound:
		b.WriteString("repository not found")
	case RefRepoExists:
		b.WriteString("repository exists")
	case RefPackExpired:
		b.WriteString("its pack was sent too long ago")
	case RefCheckStale:
		b.WriteString("its objects were checked too long ago")
	case RefScope:
		b.WriteString("scope " + f.Other + " is missing")
	case RefLimit:
		b.WriteString("limit " + f.Other + " reached")
	default:
		b.WriteString("refused")
	}
	return b.String()
}

// RefClass is what kind of refusal a reason is: edges and machines have a code for each.
type RefClass uint8

// The classes.
const (
	RefClassInvalid      RefClass = 0 // the request is wrong whatever the state
	RefClassPrecondition RefClass = 1
	RefClassExists       RefClass = 2
	RefClassNotFound     RefClass = 3
	RefClassDenied       RefClass = 4
	RefClassUnavailable  RefClass = 5
	RefClassExhausted    RefClass = 6
)

// Class returns the class of r.
func (r RefReason) Class() RefClass {
	switch r {
	case RefMismatch, RefObjectMissing, RefObjectNotCommit, RefNotSymbolic, RefSymrefDepth, RefRepoReadOnly:
		return RefClassPrecondition
	case RefExists, RefRepoExists:
		return RefClassExists
	case RefNotFound, RefRepoNotFound:
		return RefClassNotFound
	case RefProtected, RefHidden, RefScope:
		return RefClassDenied
	case RefPackExpired, RefCheckStale:
		return RefClassUnavailable
	case RefLimit:
		return RefClassExhausted
	}
	return RefClassInvalid
}

// Class returns that of the first failure.
func (e RefRefused) Class() RefClass {
	if len(e.Failures) == 0 {
		return RefClassInvalid
	}
	return e.Failures[0].Reason.Class()
}
