package core

import (
	"testing"

	"github.com/millrace/millrace/internal/errs"
)

// Apply writes the codes of refused effects into tasks: a fact whose code changes makes replicas of two programs differ. What
// is new here needs a format of entries.
func TestTheCodeOfAFactStays(t *testing.T) {
	ref := func(r RefReason) Fact { return RefRefused{Failures: []RefFailure{{Reason: r}}} }
	for code, facts := range map[errs.Code][]Fact{
		errs.InvalidArgument:    {Invalid{}, SearchInvalid{}, DimMismatch{}, RefRefused{}, ref(RefBadName)},
		errs.TooLarge:           {TooLarge{}},
		errs.Unauthenticated:    {Unauthenticated{}},
		errs.PermissionDenied:   {Denied{}, ref(RefProtected)},
		errs.NotFound:           {NotFound{}, ref(RefRepoNotFound)},
		errs.AlreadyExists:      {AlreadyExists{}, ref(RefRepoExists)},
		errs.LeaseLost:          {LeaseLost{}},
		errs.WrongState:         {WrongState{}, SessionExpired{}, SearchState{}, NotEmpty{}, InUse{}, WrongMembership{}, NotMoved{}, FormatHeld{}, WrongBatch{}},
		errs.PreconditionFailed: {RevMismatch{}, VersionMismatch{}, NotAdded{}, ref(RefMismatch), ref(RefRepoReadOnly)},
		errs.WrongPartition:     {WrongPartition{}, QueuePinned{}},
		errs.RateLimited:        {RateLimited{}},
		errs.ResourceExhausted:  {Exhausted{}, ref(RefLimit)},
		errs.NotLeader:          {NotLeader{}},
		errs.Unavailable:        {Unavailable{}, EmbedUnavailable{}, ref(RefCheckStale)},
		errs.DeadlineExceeded:   {DeadlineExceeded{}},
	} {
		for _, f := range facts {
			if f.Code() != code {
				t.Errorf("%T has the code %s, want %s", f, f.Code(), code)
			}
		}
	}
}
