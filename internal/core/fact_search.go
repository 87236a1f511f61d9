package core

import "fmt"

// SearchState says that an op does not apply to how things stand until an operator acts.
type SearchState struct {
	Reason string // model_mismatch, model_changed, embedder_missing, ruleset_unsupported
	Field  string
	Want   string
	Got    string
}

// DimMismatch says that a vector has another length than its collection's.
type DimMismatch struct {
	Field string
	Want  int64
	Got   int64
}

// VersionMismatch says that a point's condition is false, and what was found.
type VersionMismatch struct {
	Collection string
	ID         string
	Partition  uint16
	Version    uint64 // of the point; 0 when absent
}

func (SearchState) fact()     {}
func (DimMismatch) fact()     {}
func (VersionMismatch) fact() {}

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
