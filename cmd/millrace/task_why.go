package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	millrace "github.com/millrace/millrace/sdk/go"
)

// whyView is why a task is where it is, as the command line prints it.
type whyView struct {
	ID      string          `json:"id"`
	Queue   string          `json:"queue"`
	State   string          `json:"state"`
	Since   time.Time       `json:"since,omitzero"`
	Reasons []whyReasonView `json:"reasons"`
	// Ahead counts the tasks that go before a ready one, and Exact says that all were counted.
	Ahead uint64 `json:"ahead"`
	Exact bool   `json:"exact"`
}

// whyReasonView is one reason.
type whyReasonView struct {
	Code   string    `json:"code"`
	Text   string    `json:"text"`
	Object string    `json:"object,omitempty"`
	Note   string    `json:"note,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Limit  uint64    `json:"limit,omitempty"`
	HeldBy []string  `json:"held_by,omitempty"`
}

// taskWhyCmd makes the command that says why a task is where it is.
func (a *app) taskWhyCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "why ID",
		Short: "Say why a task is where it is: what it waits for, who holds it, or how it ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				w, err := client.Why(ctx, args[0])
				if err != nil {
					return err
				}
				v := whyView{ID: args[0], Queue: w.Queue, State: w.State.String(), Since: w.Since, Ahead: w.Ahead, Exact: w.Exact}
				for _, r := range w.Reasons {
					v.Reasons = append(v.Reasons, whyReasonView(r))
				}
				return a.print(v, v.text)
			})
		},
	}
}

// text prints the reasons for a person.
func (v *whyView) text(out io.Writer) {
	fmt.Fprintf(out, "%s since %s\n", v.State, stamp(v.Since))
	for _, r := range v.Reasons {
		fmt.Fprintf(out, "%s", oneLine(r.Text))
		if !r.Until.IsZero() {
			fmt.Fprintf(out, " Until %s.", stamp(r.Until))
		}
		if r.Limit > 0 {
			fmt.Fprintf(out, " Limit: %d.", r.Limit)
		}
		if len(r.HeldBy) > 0 && r.Code != "ended" {
			fmt.Fprintf(out, " Held by %s.", oneLine(strings.Join(r.HeldBy, ", ")))
		}
		if r.Note != "" {
			fmt.Fprintf(out, " Reason: %s.", oneLine(r.Note))
		}
		fmt.Fprintln(out)
	}
}

// effectView is one effect of a completion as the command line prints it.
type effectView struct {
	Op    string `json:"op"`
	Space string `json:"space,omitempty"`
	// Key is text. A key that is not text stands in KeyBase64.
	Key       string `json:"key,omitempty"`
	KeyBase64 []byte `json:"key_base64,omitempty"`
	Rev       uint64 `json:"rev,omitempty"`
	To        string `json:"to,omitempty"`
	Now       string `json:"now,omitempty"`
}

// effectsView is what a completion did as the command line prints it.
type effectsView struct {
	ID        string       `json:"id"`
	Index     uint64       `json:"index"`
	Completed time.Time    `json:"completed_at,omitzero"`
	Token     uint64       `json:"token,omitempty"`
	Count     int          `json:"count"`
	Effects   []effectView `json:"effects"`
	// Checked counts all conditions of the commit.
	Checked    int          `json:"checked,omitempty"`
	Conditions []effectView `json:"conditions,omitempty"`
}

// taskEffectsCmd makes the command that lists what a completion did.
func (a *app) taskEffectsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "effects ID",
		Short: "List what the completion of a task did besides ending it, and whether that still stands",
		Long: `List what the completion of a task did in the same log entry: keys, refs, points and follow-up tasks. Each
line says whether it still stands: current, changed (something else stands there), gone, or unknown.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return a.with(c.Context(), func(ctx context.Context, client *millrace.Client) error {
				e, err := client.Effects(ctx, args[0])
				if err != nil {
					return err
				}
				v := effectsView{
					ID: args[0], Index: e.Index, Completed: e.Completed, Token: e.Token, Count: e.Count, Checked: e.Checked,
					Effects: effectViews(e.Effects, true), Conditions: effectViews(e.Conditions, false),
				}
				return a.print(v, v.text)
			})
		},
	}
}

// effectViews makes the views of effects. Conditions are not looked at again, and have no now.
func effectViews(list []millrace.Effect, now bool) []effectView {
	out := make([]effectView, len(list))
	for i, e := range list {
		out[i] = effectView{Op: e.Op, Space: e.Space, Key: string(e.Key), Rev: e.Rev, To: e.To}
		if !utf8.Valid(e.Key) {
			out[i].Key, out[i].KeyBase64 = "", e.Key
		}
		if now {
			out[i].Now = e.Now.String()
		}
	}
	return out
}

// text prints effects for a person.
func (v *effectsView) text(out io.Writer) {
	if v.Index == 0 {
		fmt.Fprintln(out, "none")
		return
	}
	fmt.Fprintf(out, "%s at index %d, %s, token %d\n", counted(uint64(v.Count), "effect"), v.Index, stamp(v.Completed), v.Token)
	for _, e := range v.Effects {
		fmt.Fprintf(out, "%-8s %s", e.Now, oneLine(e.line()))
		if e.To != "" {
			fmt.Fprintf(out, " to %s", oneLine(e.To))
		}
		fmt.Fprintln(out)
	}
	for _, e := range v.Conditions {
		fmt.Fprintf(out, "checked  %s\n", oneLine(e.line()))
	}
}

// line names what an effect is about.
func (e *effectView) line() string {
	s := e.Op
	if e.Space != "" {
		s += " " + e.Space
	}
	if e.Key != "" {
		s += " " + e.Key
	}
	if len(e.KeyBase64) > 0 {
		s += fmt.Sprintf(" %x", e.KeyBase64)
	}
	return s
}
