package core

import (
	"fmt"

	"github.com/millrace/millrace/internal/errs"
)

// SearchState says that an op does not apply to how things stand until an operator acts.
type SearchState struct {
	Reason string // model_mismatch, model_changed, embedder_missing, ruleset_unsupported
	// The field of the request that is at fault.
	Field string
	// What the state asks for, and what the caller gave; empty where there is nothing to compare.
	Want string
	Got  string
}

// DimMismatch says that a vector has another length than its collection's.
type DimMismatch struct {
	// How many numbers the collection's vectors have, and how many the given one has.
	Field string
	Want  int64
	Got   int64
}

// VersionMismatch says that a point's condition is false, and what was found.
type VersionMismatch struct {
	Collection string
	ID         string
	// Partition of the point: a version says nothing without it.
	Partition uint16
	Version   uint64 // of the point; 0 when absent
}

// SearchInvalid is an Invalid of search that tells more: names that are near to one that is not known, or where in an
// expression the fault lies.
type SearchInvalid struct {
	Field   string
	Reason  string // unknown_role, no_role_field, expression_invalid, field_not_indexed, protected_field, ...
	Message string
	// Names that are spelled alike.
	Near []string
	Line int // from 1; 0 where no place is to blame
	// In the line, from 1; 0 where Line is 0.
	Column int
}

// EmbedUnavailable says that an embedder does not answer: texts that are kept work on, others may be tried after a while.
type EmbedUnavailable struct{ After Millis }

func (SearchInvalid) Code() errs.Code    { return errs.InvalidArgument }
func (EmbedUnavailable) Code() errs.Code { return errs.Unavailable }
func (SearchState) Code() errs.Code      { return errs.WrongState }
func (DimMismatch) Code() errs.Code      { return errs.InvalidArgument }
func (VersionMismatch) Code() errs.Code  { return errs.PreconditionFailed }

func (e SearchInvalid) Error() string {
	if e.Field == "" {
		return e.Message
	}
	return e.Field + ": " + e.Message
}

func (e EmbedUnavailable) Error() string { return "the embedder does not answer" }

func (e SearchState) Error() string {
	switch {
	case e.Want == "" && e.Got == "":
		return e.Reason
	case e.Got == "":
		return fmt.Sprintf("%s: %s", e.Reason, e.Want)
	}
	return fmt.Sprintf("%s: is %q, given %q", e.Reason, e.Want, e.Got)
}

func (e DimMismatch) Error() string {
	return fmt.Sprintf("%s: a vector of %d numbers, the collection has %d", e.Field, e.Got, e.Want)
}

func (e VersionMismatch) Error() string {
	if e.Version == 0 {
		return fmt.Sprintf("point %q of collection %q is absent", e.ID, e.Collection)
	}
	return fmt.Sprintf("point %q of collection %q has version %d/%d", e.ID, e.Collection, e.Partition, e.Version)
}
