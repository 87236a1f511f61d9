package main

import (
	"errors"
	"fmt"
	"strings"

	millrace "github.com/millrace/millrace/sdk/go"
)

// afterView is a task that another one was made to wait for. State is empty where it is not there any more, and in lists.
type afterView struct {
	ID string `json:"id"`
	// completed, or terminal where any end is enough.
	On    string `json:"on"`
	State string `json:"state,omitempty"`
	// The other one still waits for it.
	Waits bool `json:"waits,omitempty"`
}

// aftersOf makes the views of the tasks that one was made to wait for.
func aftersOf(in []millrace.Dependency) []afterView {
	var out []afterView
	for _, d := range in {
		v := afterView{ID: d.ID, On: "completed", Waits: d.Waits}
		if d.Terminal {
			v.On = "terminal"
		}
		if d.State != 0 {
			v.State = d.State.String()
		}
		out = append(out, v)
	}
	return out
}

// text prints one for a person.
func (v afterView) text() string {
	out := v.ID
	if v.On == "terminal" {
		out += ":terminal"
	}
	if v.State == "" {
		out += " (gone)"
	} else {
		out += " (" + v.State + ")"
	}
	if v.Waits {
		out += ", waited for"
	}
	return out
}

// waits makes the options of a task that waits for others.
func (f *taskFlags) waits() (opts []millrace.AddOption, err error) {
	for _, a := range f.after {
		if id, ok := strings.CutSuffix(a, ":terminal"); ok {
			opts = append(opts, millrace.AfterEnd(id))
		} else {
			opts = append(opts, millrace.After(strings.TrimSuffix(a, ":completed")))
		}
	}
	if f.onDepFailure == "" {
		return opts, nil
	}
	if len(f.after) == 0 {
		return nil, usageError{errors.New("--on-dep-failure: needs --after")}
	}
	if d, ok := depFailureOf(f.onDepFailure); ok {
		return append(opts, millrace.OnDepFailure(d)), nil
	}
	return nil, usageError{fmt.Errorf("--on-dep-failure: must be hold, cancel or run, not %q", f.onDepFailure)}
}

// depFailureOf reads what becomes of a task when one that it waits for is not completed.
func depFailureOf(word string) (millrace.DepFailure, bool) {
	for _, d := range [...]millrace.DepFailure{millrace.DepHold, millrace.DepCancel, millrace.DepRun} {
		if d.String() == word {
			return d, true
		}
	}
	return 0, false
}

// afterOptions reads the tasks that the one of a task_create waits for.
func afterOptions(o *strictObject) (opts []millrace.AddOption) {
	for _, a := range o.objects("after") {
		id := a.required("id")
		switch on, ok := a.text("on"); {
		case ok && on == "terminal":
			opts = append(opts, millrace.AfterEnd(id))
		case ok && on != "completed":
			a.refuse("on", "must be completed or terminal")
		default:
			opts = append(opts, millrace.After(id))
		}
		o.within("after", a.done())
	}
	if word, ok := o.text("on_dep_failure"); ok {
		d, known := depFailureOf(word)
		if !known {
			o.refuse("on_dep_failure", "must be hold, cancel or run")
		}
		opts = append(opts, millrace.OnDepFailure(d))
	}
	return opts
}
