package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/millrace/millrace/bench/agents"
	"github.com/millrace/millrace/test/chaos/proc"
)

// StepWait bounds each step. It is only reached when something hangs.
const StepWait = 40 * time.Second

// run is a scenario that is played for one language, or for a pair.
type run struct {
	s       *Scenario
	dir     string
	wait    time.Duration // the bound of each step
	servers map[string]*server
	fakes   map[string]*player
	links   map[string]*proc.Proxy
	agents  map[string]*agents.Agent
	kept    map[string]any
	open    map[string]<-chan agents.Answer // answers that a later step waits for
}

// Play plays a scenario with agents that have the command lines, the partner's being the second; each step may take wait. What it started
// has ended when it returns. An error tells the step, and what was said.
func (s *Scenario) Play(ctx context.Context, program, dir string, wait time.Duration, lines [2][]string) (err error) {
	r := &run{
		s: s, dir: dir, wait: wait, servers: map[string]*server{}, fakes: map[string]*player{}, links: map[string]*proc.Proxy{}, agents: map[string]*agents.Agent{},
		kept: map[string]any{}, open: map[string]<-chan agents.Answer{},
	}
	defer func() {
		for _, a := range r.agents {
			a.Close()
		}
		if err != nil {
			for _, name := range slices.Sorted(maps.Keys(r.agents)) {
				err = fmt.Errorf("%w\n-- agent %s\n%s", err, name, r.agents[name].Said())
			}
		}
		err = errors.Join(err, r.close())
	}()
	if err := r.startAll(ctx, program, lines); err != nil {
		return err
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		ctx, cancel := context.WithTimeout(ctx, wait)
		err := r.step(ctx, step)
		cancel()
		if err != nil {
			return fmt.Errorf("%s.yaml:%d: %s %s: %w", s.File, step.Line, step.Who, step.Word, err)
		}
	}
	return nil
}

// startAll starts servers, links and agents.
func (r *run) startAll(ctx context.Context, program string, lines [2][]string) error {
	for name, spec := range r.s.Servers {
		s, err := startServer(ctx, program, filepath.Join(r.dir, name), spec)
		if s != nil {
			r.servers[name] = s
		}
		if err != nil {
			return err
		}
	}
	for name := range r.s.Fakes {
		var err error
		if r.fakes[name], err = newPlayer(ctx); err != nil {
			return err
		}
	}
	for name, of := range r.s.Links {
		address, _ := r.reach(of)
		if s := r.servers[of]; s != nil && r.s.linksREST(name) {
			address = s.http()
		}
		var err error
		if r.links[name], err = proc.NewProxy(address); err != nil {
			return err
		}
	}
	for name, spec := range r.s.Agents {
		line := lines[0]
		if spec.Partner {
			line = lines[1]
		}
		if err := r.startAgent(name, spec, line); err != nil {
			return fmt.Errorf("agent %s: %w", name, err)
		}
	}
	return nil
}

// reach is the address of a server, real or fake, and a token that it takes.
func (r *run) reach(name string) (address, token string) {
	if f := r.fakes[name]; f != nil {
		return f.address, "mr_fake"
	}
	s := r.servers[name]
	return s.address(), s.token
}

// startAgent starts an agent and has it open its client.
func (r *run) startAgent(name string, spec AgentSpec, line []string) error {
	a, err := agents.Start(line...)
	if err != nil {
		return err
	}
	r.agents[name] = a
	of := spec.Server
	if spec.Link != "" {
		of = r.s.Links[spec.Link]
	}
	address, token := r.reach(of)
	if spec.Link != "" {
		address = r.links[spec.Link].Address()
	}
	fields := map[string]any{"address": address, "token": token, "namespace": "default"}
	if s := r.servers[of]; s != nil {
		fields["namespace"] = s.namespace
	}
	if spec.Open.Kind != 0 {
		more, err := valueOf(&spec.Open, "open", "json")
		if err != nil {
			return err
		}
		maps.Copy(fields, more.(map[string]any))
	}
	if s := r.servers[spec.Server]; s != nil && spec.opensREST() { // it has a door of its own
		fields["address"] = s.http()
	}
	_, err = a.Ask("open", fields, r.wait)
	return err
}

func (r *run) close() (err error) {
	for _, p := range r.links {
		err = errors.Join(err, p.Close())
	}
	for _, f := range r.fakes {
		f.server.Stop()
	}
	for _, s := range r.servers {
		err = errors.Join(err, s.close())
	}
	return err
}

// step carries out one step.
func (r *run) step(ctx context.Context, s *Step) error {
	value, err := r.filled(s.Value)
	if err != nil {
		return err
	}
	for {
		got, err := r.do(ctx, s, value)
		if !s.Start {
			err = r.judge(s, got, err)
		}
		if err == nil || !s.Until || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// judge compares an answer with what the step expects, and keeps it.
func (r *run) judge(s *Step, got any, err error) error {
	if s.ExpectErr != nil {
		e, ok := errors.AsType[agents.Error](err)
		if !ok {
			return fmt.Errorf("answered %v, %w; an error is expected", show(got), err)
		}
		want, err := r.filled(s.ExpectErr)
		if err != nil {
			return err
		}
		if d := differs(want, any(e.Fields)); d != "" {
			return fmt.Errorf("answered the error %w: %s", e, d)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if s.HasExpect {
		want, err := r.filled(s.Expect)
		if err != nil {
			return err
		}
		if d := differs(want, got); d != "" {
			return fmt.Errorf("answered %s: %s", show(got), d)
		}
	}
	if s.As != "" {
		r.kept[s.As] = got
	}
	return nil
}

func show(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// do does what a step's word says.
func (r *run) do(ctx context.Context, s *Step, value any) (any, error) {
	if a := r.agents[s.Who]; a != nil {
		return r.byAgent(a, s, value)
	}
	if l := r.links[s.Who]; l != nil {
		return nil, link(l, s.Word, value)
	}
	if f := r.fakes[s.Who]; f != nil {
		return f.do(ctx, s.Word, value)
	}
	got, err := r.servers[s.Who].do(ctx, s.Word, value)
	if err != nil {
		return nil, err
	}
	return plain(got)
}

// plain makes of an answer of the runner's own client what JSON would: maps, lists, texts and numbers.
func plain(v any) (out any, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&out)
	return out, err
}

func (r *run) byAgent(a *agents.Agent, s *Step, value any) (any, error) {
	switch s.Word {
	case "event", "no_event":
		want, ok := value.(map[string]any)
		if !ok {
			want = map[string]any{"event": value}
		}
		wanted := func(event map[string]any) bool { return differs(want, event) == "" }
		if s.Word == "no_event" {
			if a.Seen(wanted) {
				return nil, fmt.Errorf("the event %s came", show(want))
			}
			return nil, nil
		}
		got, err := a.Await(wanted, r.wait)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", show(want), err)
		}
		return got, nil
	case "signal":
		sig, ok := map[any]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL, "SIGSTOP": syscall.SIGSTOP, "SIGCONT": syscall.SIGCONT}[value]
		if !ok {
			return nil, fmt.Errorf("signal %v is not known", value)
		}
		return nil, a.Signal(sig)
	case "exit":
		got, err := a.Exit(r.wait)
		if want := fmt.Sprint(value); err == nil && want != fmt.Sprint(got) {
			err = fmt.Errorf("the agent ended with %d, not %s", got, want)
		}
		return got, err
	case "answer":
		c := r.open[fmt.Sprint(value)]
		if c == nil {
			return nil, fmt.Errorf("no step started %v", value)
		}
		return agents.Answered(c, r.wait)
	}
	if s.Word == "wait" || s.Word == "get" || s.Word == "cancel" { // by the id alone, or by what was kept
		value = withID(value)
	}
	c, err := a.Do(s.Word, value)
	if err != nil {
		return nil, err
	}
	if s.Start {
		r.open[s.As] = c
		return nil, nil
	}
	return agents.Answered(c, r.wait)
}

// withID makes fields of an id, or of what a step kept of a task.
func withID(v any) any {
	if id, ok := v.(string); ok {
		return map[string]any{"id": id}
	}
	return v
}

// link changes what a proxy does.
func link(p *proc.Proxy, word string, value any) error {
	switch word {
	case "hold_answers": // requests go through, answers do not
		p.Set(proc.Rule{Back: proc.Way{Stall: true}})
	case "silence": // nothing goes through, and no connection ends
		p.Set(proc.Silence)
	case "refuse": // connections end, and new ones are refused
		p.Set(proc.Rule{Refuse: true})
		p.Reset()
	case "cut": // connections end; new ones go through
		p.Set(proc.Rule{})
		p.Reset()
	case "pass":
		p.Set(proc.Rule{})
	case "delay_ms":
		n, err := number(value)
		if err != nil {
			return err
		}
		d := time.Duration(n) * time.Millisecond
		p.Set(proc.Rule{Forward: proc.Way{Delay: d}, Back: proc.Way{Delay: d}})
	default:
		return fmt.Errorf("a link does not know the word %s", word)
	}
	return nil
}

func number(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("%v must be a number", v)
	}
	return n.Int64()
}

// filled puts what steps kept in the place of names such as $h and $h.id.
func (r *run) filled(v any) (any, error) {
	switch x := v.(type) {
	case string:
		if !strings.HasPrefix(x, "$") || x == "$args" {
			return x, nil
		}
		name, path, _ := strings.Cut(x[1:], ".")
		out, ok := r.kept[name]
		if !ok {
			return nil, fmt.Errorf("nothing was kept as %s", name)
		}
		for _, field := range strings.FieldsFunc(path, func(c rune) bool { return c == '.' }) {
			switch of := out.(type) {
			case map[string]any:
				out = of[field]
			case []any:
				n, err := json.Number(field).Int64()
				if err != nil || int(n) >= len(of) {
					return nil, fmt.Errorf("%s has no entry %s", x, field)
				}
				out = of[n]
			default:
				return nil, fmt.Errorf("%s has no field %s", x, field)
			}
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, v := range x {
			var err error
			if out[k], err = r.filled(v); err != nil {
				return nil, err
			}
		}
		return out, nil
	case []any:
		out := make([]any, len(x))
		for i, v := range x {
			var err error
			if out[i], err = r.filled(v); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// differs says where got lacks what want has; empty: nowhere. Maps may have more than is wanted, lists may not. Texts that are JSON on
// both sides are compared without the space between their parts, and a text that begins with ~ is a part of what is wanted.
func differs(want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Sprintf("want %s", show(want))
		}
		for _, k := range slices.Sorted(maps.Keys(w)) {
			if d := differs(w[k], g[k]); d != "" {
				return k + ": " + d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("got %s, want %s", show(got), show(want))
		}
		for i := range w {
			if d := differs(w[i], g[i]); d != "" {
				return fmt.Sprintf("%d: %s", i, d)
			}
		}
		return ""
	case nil:
		if got == nil {
			return ""
		}
	case string:
		g := fmt.Sprint(got)
		if part, ok := strings.CutPrefix(w, "~"); ok && strings.Contains(g, part) || got != nil && compact(w) == compact(g) {
			return ""
		}
	default:
		if got != nil && fmt.Sprint(want) == fmt.Sprint(got) {
			return ""
		}
	}
	return fmt.Sprintf("got %s, want %s", show(got), show(want))
}

func compact(s string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(s)) != nil {
		return s
	}
	return b.String()
}
