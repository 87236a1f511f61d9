package edge

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/errs"
)

// Misplaced is an Invalid of a field that says another partition than the one it came to.
type Misplaced struct {
	core.Invalid
	Place int // where it belongs; below 0: nowhere
}

// Code is the one of all refusals for the sake of a partition.
func (Misplaced) Code() errs.Code { return errs.WrongPartition }

// Belongs refuses a field that names another partition than the one it came to.
func Belongs(field string, place int) core.Fact {
	return Misplaced{
		Invalid: core.Invalid{Field: field, Message: fmt.Sprintf("belongs to partition %d", place)}, Place: place,
	}
}

// details names the partition where the field belongs, if there is one.
func (f Misplaced) details() map[string]string {
	if f.Place < 0 {
		return nil
	}
	return map[string]string{"partition": strconv.Itoa(f.Place)}
}

// AtOp is a fact about one op of a commit.
type AtOp struct {
	core.Fact
	Op int
}

// Unwrap returns the fact.
func (f AtOp) Unwrap() error { return f.Fact }

// searchReasons are the limits that an error names as its reason too.
var searchReasons = map[string]string{
	"tail_full": "tail_full", "search_memory": "search_memory", "points_limit": "points_limit",
}

// describeSearch tells what a fact of search has besides its text.
func describeSearch(e *pb.Error, fact core.Fact) {
	switch f := fact.(type) {
	case core.SearchInvalid:
		e.Field, e.Reason = f.Field, f.Reason
		if len(f.Near) > 0 {
			e.Details = map[string]string{"near": strings.Join(f.Near, ",")}
		}
		if f.Line > 0 {
			e.Details = map[string]string{"line": strconv.Itoa(f.Line), "column": strconv.Itoa(f.Column)}
		}
	case core.DimMismatch:
		e.Field, e.Reason = f.Field, "dim_mismatch"
		e.Details = map[string]string{"want": strconv.FormatInt(f.Want, 10), "got": strconv.FormatInt(f.Got, 10)}
	case core.VersionMismatch:
		e.Reason = "version_mismatch"
		e.Details = map[string]string{"actual": ShowVersion(f.Partition, f.Version)}
	case core.EmbedUnavailable:
		e.Reason, e.RetryAfter = "embed_unavailable", durationpb.New(f.After.Duration())
	case core.SearchState:
		e.Field, e.Reason = f.Field, f.Reason
		switch {
		case f.Reason == "ruleset_unsupported":
			e.Details = map[string]string{"node": f.Want}
		case f.Want != "":
			e.Details = map[string]string{"want": f.Want, "got": f.Got}
		}
	}
}

// ShowVersion is a point's version: partition and number; 0 for none.
func ShowVersion(partition uint16, version uint64) string {
	if version == 0 {
		return "0"
	}
	return strconv.FormatUint(uint64(partition), 10) + "/" + strconv.FormatUint(version, 10)
}
