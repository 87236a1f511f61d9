package githttp

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

// command is one change that a push asks for. It is open until it is refused, or is known to be
// done. What becomes of it is reported for each, in the order in which the client sent them.
type command struct {
	// old is where the client takes the ref to be, and new where it wants it; zero stands for no
	// ref.
	old, new core.ObjectID
	name     string
	refused  string         // what the client is told; empty: not refused
	below    string         // a directory of refs that is in the way; empty: none is
	there    bool           // of a push that is repeated: the ref is where it should be
	result   core.RefResult // of one that landed

	// What was found out of the new object; see examine.
	kind     core.ObjectType
	peeled   core.ObjectID // what a tag finally points to
	asked    bool          // ancestry was asked for, of the old value
	ancestry core.Ancestry
}

// deletes reports whether the command removes the ref.
func (c *command) deletes() bool { return c.new.IsZero() }

// fail notes why the command did not land.
func (c *command) fail(f *core.RefFailure) {
	c.refused = textOf(f)
	if c.ancestry == core.Forced && (f.Reason == core.RefScope || f.Reason == core.RefProtected) {
		c.refused += line("; " + c.name + " does not move forward: " + c.new.String() + " does not descend from " + c.old.String())
	}
	if f.Reason == core.RefConflict && strings.HasSuffix(f.Other, "/") {
		c.below = f.Other
	}
}

// open reports whether the command is still to be done.
func (c *command) open() bool { return c.refused == "" && !c.there }

// commands are all that comes before a push's pack. Once denied is set, lines are still read, but
// only those are kept that say how the client wants to be told.
type commands struct {
	list       []command
	caps       map[string]bool // those that the client chose
	chosen     bool            // they were read
	options    []string        // push options, as they came
	held       int64           // bytes of memory that are accounted for
	wantsIndex bool            // an option asks where the push stands
	shallow    bool            // the client's history is not whole: it has commits without their parents
	denied     error           // why all of it is refused, told where people see it; nil: it is not
}

// deny refuses the push as a whole. What follows is read nevertheless: only a client that has sent all shows an answer.
func (c *commands) deny(err error) {
	if c.denied == nil {
		c.denied = err
	}
}

const (
	// maxOptions and maxOptionBytes bound the push options, which are kept with the commit.
	maxOptions     = core.MaxPushOption
	maxOptionBytes = 1 << 10
	// commandCost is how many bytes a command takes in addition to its name.
	commandCost = 160
)

// known are the capabilities that a client may choose.
var known = []string{
	"report-status", "report-status-v2", "delete-refs", "side-band-64k", "quiet", "atomic", "ofs-delta", "push-options",
}

// readCommands reads a push up to its pack. The memory it takes is given back by release. Neither a
// command nor a refusal is the probe of a client that wants to know whether it is let in. An error:
// it is not a push of git, or cannot be read. Its commands are counted against HeldBytes together
// with those of all other pushes, since one push may have a million.
func (q *request) readCommands(in *bufio.Reader) (c *commands, err error) {
	c = &commands{caps: make(map[string]bool)}
	defer func() {
		if err != nil {
			q.release(c)
		}
	}()
	p := &pktReader{r: in}
	for {
		kind, payload, err := p.next()
		switch {
		case errors.Is(err, io.EOF) && !c.chosen && !c.shallow:
			return c, nil
		case edge.Is[core.TooLarge](err):
			c.deny(err)
			return c, nil
		case err != nil:
			return c, badCommands(err)
		case kind == pktFlush:
			if c.caps["push-options"] {
				return c, c.readOptions(p)
			}
			return c, nil
		case kind != pktData:
			return c, badCommands(errPkt)
		}
		if err := q.take(c, payload); err != nil {
			return c, err
		}
	}
}

// take reads one line before the flush: where the client's history ends, or a command, after the
// first of which come the capabilities that it chose. The capabilities stand behind a zero byte.
func (q *request) take(c *commands, payload []byte) error {
	if id, ok := bytes.CutPrefix(payload, []byte("shallow ")); ok {
		// Which commits they are does not matter: a pack is only taken with all that its objects link to.
		c.shallow = true
		if _, err := core.ParseObjectID(string(bytes.TrimSuffix(id, []byte("\n")))); err != nil {
			return badCommands(errPkt)
		}
		return nil
	}
	if !c.chosen {
		line, caps, _ := bytes.Cut(payload, []byte{0})
		c.choose(string(caps))
		payload = line
	}
	return q.add(c, bytes.TrimSuffix(payload, []byte("\n")))
}

// badCommands is the error of a body that is not a push.
func badCommands(err error) error {
	if errors.Is(err, errPkt) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return core.Invalid{Field: "body", Message: "must be a push of git"}
	}
	return err
}

// choose notes which capabilities the client chose.
func (c *commands) choose(caps string) {
	c.chosen = true
	for _, name := range strings.Fields(caps) {
		switch {
		case slices.Contains(known, name):
			c.caps[name] = true
		case strings.HasPrefix(name, "agent="), strings.HasPrefix(name, "session-id="), name == "object-format=sha1":
		default:
			c.deny(core.Invalid{Field: "capability", Reason: "not_supported", Message: line(clip(name)) + " was not offered"})
		}
	}
}

// add reads one command: the old id, the new one and the name. Of a push that is refused, only what tells its client so is kept.
func (q *request) add(c *commands, line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte("push-cert")):
		c.deny(core.Invalid{Field: "push-cert", Reason: "not_supported", Message: "signed pushes are not taken"})
	case len(c.list) >= q.s.l.PushRefs:
		c.deny(core.TooLarge{Field: "commands", Limit: "push_refs", Max: int64(q.s.l.PushRefs)})
		return nil
	}
	parsed, ok := parseCommand(line)
	switch {
	case !ok && c.denied != nil: // a line of a signature, say
		return nil
	case !ok:
		return badCommands(errPkt)
	}
	cost := int64(len(parsed.name) + commandCost)
	if !q.s.held.Take(cost) {
		c.deny(core.Unavailable{Reason: "overload", Limit: "git_command_bytes"})
		return nil
	}
	c.held += cost
	c.list = append(c.list, parsed)
	return nil
}

// parseCommand reads the ids in hexadecimal digits, and then the name.
func parseCommand(line []byte) (c command, ok bool) {
	const ids = 2*40 + 2
	if len(line) <= ids || line[40] != ' ' || line[ids-1] != ' ' {
		return c, false
	}
	older, err := core.ParseObjectID(string(line[:40]))
	newer, err2 := core.ParseObjectID(string(line[41 : ids-1]))
	return command{old: older, new: newer, name: string(line[ids:])}, err == nil && err2 == nil
}

// release gives back the memory of commands.
func (q *request) release(c *commands) {
	q.s.held.Give(c.held)
	c.held = 0
}

// readOptions reads the push options that follow the commands.
func (c *commands) readOptions(p *pktReader) error {
	for {
		kind, payload, err := p.next()
		switch {
		case edge.Is[core.TooLarge](err):
			c.deny(err)
			return nil
		case err != nil:
			return badCommands(err)
		case kind == pktFlush:
			return nil
		case kind != pktData:
			return badCommands(errPkt)
		}
		option := bytes.TrimSuffix(payload, []byte("\n"))
		switch {
		case len(c.options) == maxOptions:
			c.deny(core.TooLarge{Field: "push_options", Limit: "push_options", Max: maxOptions})
		case len(option) > maxOptionBytes:
			c.deny(core.TooLarge{Field: "push_options", Limit: "push_option_bytes", Max: maxOptionBytes})
		case !utf8.Valid(option):
			c.deny(core.Invalid{Field: "push_options", Message: "must be UTF-8"})
		default:
			c.options = append(c.options, string(option))
		}
	}
}

// reserved begins the options that speak to this server; all others are handed on as they came.
const reserved = "millrace."

// readOurs reads the options that speak to this server: the id under which the push may be
// repeated, if one gives it, and whether the client wants to know where its push stands although it
// is quiet. One that is not known is an error. Options of other names are not for this server: they
// go into the commit.
func (c *commands) readOurs() (id core.RequestID, given bool, err error) {
	for _, o := range c.options {
		name, ok := strings.CutPrefix(o, reserved)
		if !ok {
			continue
		}
		name, value, valued := strings.Cut(name, "=")
		switch {
		case name == "index" && !valued:
			c.wantsIndex = true
		case name == "index":
			return id, false, core.Invalid{Field: "push_options", Message: reserved + "index takes no value"}
		case name == "request-id":
			parsed, err := core.ParseRepoID(value) // 32 hexadecimal digits too
			if err != nil || parsed.IsZero() {
				return id, false, core.Invalid{Field: "push_options", Message: reserved + "request-id must be 32 hexadecimal digits"}
			}
			id, given = core.RequestID(parsed), true
		default:
			return id, false, core.Invalid{Field: "push_options", Reason: "not_supported", Message: line(clip(reserved+name)) + " is not known"}
		}
	}
	return id, given, nil
}

// sort puts deletions first, as git does, and otherwise keeps the order.
func (c *commands) sorted() []*command {
	out := make([]*command, 0, len(c.list))
	for _, deletions := range []bool{true, false} {
		for i := range c.list {
			if c.list[i].deletes() == deletions {
				out = append(out, &c.list[i])
			}
		}
	}
	return out
}
