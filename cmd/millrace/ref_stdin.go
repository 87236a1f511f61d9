package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	millrace "github.com/millrace/millrace/sdk/go"
)

// refStore is what updater needs of a repository.
type refStore interface {
	// resolve returns what a ref finally points to; empty when it does not exist.
	resolve(ctx context.Context, name string) (string, error)
	// commit makes all changes in one transaction, or none of them.
	commit(ctx context.Context, changes []millrace.RefChangeSpec) error
}

// fatalError is an error on which git would exit: its text follows "fatal: ", and the exit code is
// 128.
type fatalError string

// Error returns the text.
func (e fatalError) Error() string { return string(e) }

// fatalf makes a fatalError.
func fatalf(format string, args ...any) error { return fatalError(fmt.Sprintf(format, args...)) }

// maxLine bounds one command of a stream, in bytes: a name and two values, quoted.
const maxLine = 16 << 10

// updater runs update-ref commands in git's dialect. One goroutine uses it.
type updater struct {
	// store is where refs are read and changed.
	store refStore
	// in has the commands, and out gets the answers of transactions.
	in  *bufio.Reader
	out io.Writer
	// The message of each entry in a ref's log.
	message string
	// --no-deref: no command follows symbolic refs.
	noDeref bool
	// What ends a command: NUL with -z, else a line feed.
	term byte

	state txnState
	// The next command does not follow symbolic refs; the command "option no-deref" sets it and add
	// clears it.
	once bool
	// The changes of the transaction, which apply commits together.
	changes []millrace.RefChangeSpec
}

// txnState is the state of the transaction of a stream. enter moves it on.
type txnState uint8

// The states, in the order in which git passes through them. A stream begins in txnOpen: without
// "start", all changes are committed when the input ends. After "start" they are committed by
// "commit" only.
const (
	txnOpen    txnState = iota // not started: what there is is committed at the end
	txnStarted                 // started: aborted at the end
	// txnPrepared is git's state between two phases of a commit; no stream reaches it here.
	txnPrepared
	// txnClosed is after a commit or an abort: only "start" may follow.
	txnClosed
)

// streamCommand is a command of the dialect.
type streamCommand struct {
	// name is the word that begins the command.
	name string
	// The number of its arguments with -z, where each is a field of its own; 0 also says that no
	// space follows the name.
	args int
	// The state that the transaction is in after the command.
	state txnState
	// run carries the command out.
	run func(*updater, context.Context, *fields) error
}

// streamCommands are all commands. prepare is here so that it is refused by its name; enter never
// lets it run.
var streamCommands = []streamCommand{
	{"update", 3, txnOpen, (*updater).update},
	{"create", 2, txnOpen, (*updater).create},
	{"delete", 2, txnOpen, (*updater).delete},
	{"verify", 2, txnOpen, (*updater).verify},
	{"symref-update", 4, txnOpen, (*updater).symrefUpdate},
	{"symref-create", 2, txnOpen, (*updater).symrefCreate},
	{"symref-delete", 2, txnOpen, (*updater).symrefDelete},
	{"symref-verify", 2, txnOpen, (*updater).symrefVerify},
	{"option", 1, txnOpen, (*updater).option},
	{"start", 0, txnStarted, (*updater).start},
	{"prepare", 0, txnPrepared, nil},
	{"abort", 0, txnClosed, (*updater).abort},
	{"commit", 0, txnClosed, (*updater).commit},
}

// run reads and runs commands until the input ends. An error ends the stream, and what was not
// committed is not done. At the end of the input the changes are committed if no transaction was
// started; one that was started and not committed is aborted, as in git.
func (u *updater) run(ctx context.Context) error {
	for {
		line, err := u.read()
		if errors.Is(err, io.EOF) && line == "" {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := u.one(ctx, line); err != nil {
			return err
		}
	}
	if u.state == txnOpen {
		return u.apply(ctx)
	}
	return nil // one that was started and not committed is aborted, as in git
}

// read returns the input up to and with the next terminator. The last part may have none and comes
// with io.EOF.
func (u *updater) read() (string, error) {
	var b []byte
	for {
		part, err := u.in.ReadSlice(u.term)
		// ReadSlice returns at most a buffer at a time, so a long command is seen before all of it
		// was read.
		if b = append(b, part...); len(b) > maxLine {
			return "", fatalf("a command is longer than %d bytes", maxLine)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return string(b), err
		}
	}
}

// one runs one command:
//
//  1. It finds the command by its name, which a space follows if the command has arguments, else
//     the terminator.
//  2. With -z it reads one more field for each further argument. A stream that ends too early is
//     left to the command, which knows what is missing.
//  3. It moves the transaction's state on, which may refuse the command.
//  4. It runs the command on the fields after the name.
func (u *updater) one(ctx context.Context, line string) error {
	switch {
	case line[0] == u.term:
		return fatalError("empty command in input")
	case isSpace(line[0]):
		return fatalf("whitespace before command: %s", line)
	}
	var c *streamCommand
	for i := range streamCommands {
		name := streamCommands[i].name
		after := u.term
		if streamCommands[i].args > 0 {
			after = ' '
		}
		if len(line) > len(name) && line[:len(name)] == name && line[len(name)] == after {
			c = &streamCommands[i]
			break
		}
	}
	if c == nil {
		return fatalf("unknown command: %s", line)
	}
	// In lines a command is one line and complete. With -z the line read so far has only the first
	// argument.
	for i := 1; u.term == 0 && i < c.args; i++ {
		more, err := u.read()
		line += more
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil {
			break // the command says what is missing
		}
	}
	if err := u.enter(c); err != nil {
		return err
	}
	f := &fields{rest: line[len(c.name):], term: u.term, command: c.name}
	if c.args > 0 {
		f.rest = f.rest[1:]
	}
	return c.run(u, ctx, f)
}

// enter moves the transaction to the state that command c leads to, or refuses c. After a
// transaction was closed only start is allowed, which begins an empty one.
func (u *updater) enter(c *streamCommand) error {
	if c.state == txnPrepared {
		return fatalError("prepare is not supported yet")
	}
	if u.state == txnClosed {
		if c.state != txnStarted {
			return fatalError("transaction is closed")
		}
		u.state, u.changes = txnStarted, nil
		return nil
	}
	if u.state == txnStarted && c.state == txnStarted {
		return fatalError("cannot restart ongoing transaction")
	}
	// Commands that add changes have the lowest state, so they leave a started transaction as it
	// is.
	u.state = max(u.state, c.state)
	return nil
}

// add adds a change to the transaction. An option before the command applies to this change alone.
func (u *updater) add(c millrace.RefChangeSpec) {
	c.NoDeref = c.NoDeref || u.noDeref || u.once
	c.Message = u.message
	u.once = false
	u.changes = append(u.changes, c)
}

// update reads "update REF NEW [OLD]". A zero NEW deletes the ref; a zero OLD demands that it does
// not exist.
func (u *updater) update(ctx context.Context, f *fields) error {
	name, err := f.ref()
	if err != nil {
		return err
	}
	id, ok, err := f.value(ctx, u, name, "newvalue", true)
	if err != nil {
		return err
	}
	if !ok {
		return fatalf("update %s: missing <newvalue>", name)
	}
	c := millrace.RefChangeSpec{Kind: millrace.ChangeUpdate, Name: name, New: id}
	if id == zeros { // deletes the ref, which may be absent
		c = millrace.RefChangeSpec{Kind: millrace.ChangeUpdate, Name: name}
	}
	if id, ok, err = f.value(ctx, u, name, "oldvalue", false); err != nil {
		return err
	}
	if ok {
		c.Old = &id
	}
	if err := f.end(name); err != nil {
		return err
	}
	u.add(c)
	return nil
}

// create reads "create REF NEW": the ref must not exist.
func (u *updater) create(ctx context.Context, f *fields) error {
	name, err := f.ref()
	if err != nil {
		return err
	}
	id, ok, err := f.value(ctx, u, name, "newvalue", false)
	switch {
	case err != nil:
		return err
	case !ok:
		return fatalf("create %s: missing <newvalue>", name)
	case id == zeros:
		return fatalf("create %s: zero <newvalue>", name)
	}
	if err := f.end(name); err != nil {
		return err
	}
	u.add(millrace.RefChangeSpec{Kind: millrace.ChangeCreate, Name: name, New: id})
	return nil
}

// delete reads "delete REF [OLD]". Without OLD an absent ref is not an error.
func (u *updater) delete(ctx context.Context, f *fields) error {
	name, err := f.ref()
	if err != nil {
		return err
	}
	id, ok, err := f.value(ctx, u, name, "oldvalue", false)
	if err != nil {
		return err
	}
	c := millrace.RefChangeSpec{Kind: millrace.ChangeDelete, Name: name, MissingOK: true}
	if ok {
		if id == zeros {
			return fatalf("delete %s: zero <oldvalue>", name)
		}
		c.Old = &id
	}
	if err := f.end(name); err != nil {
		return err
	}
	u.add(c)
	return nil
}

// verify reads "verify REF [OLD]". Without OLD the ref must not exist.
func (u *updater) verify(ctx context.Context, f *fields) error {
	name, err := f.ref()
	if err != nil {
		return err
	}
	id, ok, err := f.value(ctx, u, name, "oldvalue", false)
	if err != nil {
		return err
	}
	c := millrace.RefChangeSpec{Kind: millrace.ChangeVerify, Name: name}
	if ok {
		c.Old = &id
	}
	if err := f.end(name); err != nil {
		return err
	}
	u.add(c)
	return nil
}

// symrefUpdate reads "symref-update REF TARGET [(ref OLD-TARGET | oid OLD-ID)]". With -z the last
// two fields are always there and may be empty, which means the same as leaving them out.
func (u *updater) symrefUpdate(ctx context.Context, f *fields) error {
	name, err := f.ref()
	if err != nil {
		return err
	}
	target, ok, err := f.text()
	if err != nil {
		return err
	}
	if !ok || target == "" {
		return fatalf("symref-update %s: missing <new-target>", name)
	}
	c := millrace.RefChangeSpec{Kind: millrace.ChangeSymrefUpdate, Name: name, Target: target}
	what, ok, err := f.text()
	if err != nil {
		return err
	}
	// An old value is a kind and a value. With -z both fields are always there, and an empty kind
	// means that there is none.
	if ok && what != "" {
		switch what {
		case "ref":
			old, ok, err := f.text()
			if err != nil {
				return err
			}
			if !ok || old == "" {
				return fatalf("symref-update %s: expected old value", name)
			}
			c.OldTarget = &old
		case "oid":
			id, ok, err := f.value(ctx, u, name, "old-oid", true)
			if err != nil {
				return err
			}
			if !ok {
				return fatalf("symref-update %s: expected old value", name)
			}
			c.Old = &id
		default:
			return fatalf("symref-update %s: invalid arg '%s' for old value", name, what)
		}
	} else if ok && f.term == 0 {
		if _, _, err := f.text(); err != nil { // the fourth field is there, and empty
			return err
		}
	}
	if err := f.end(name); err != nil {
		return err
	}
	u.add(c)
	return nil
}

// symrefCreate reads "symref-create REF TARGET".
func (u *updater) symrefCreate(_ context.Context, f *fields) error {
	name, target, _, err := f.pair("new-target", true)
	if err != nil {
		return err
	}
	u.add(millrace.RefChangeSpec{Kind: millrace.ChangeSymrefCreate, Name: name, Target: target})
	return nil
}

// symrefDelete reads "symref-delete REF [OLD-TARGET]". Like git it demands no-deref.
func (u *updater) symrefDelete(_ context.Context, f *fields) error {
	if !u.noDeref && !u.once {
		return fatalError("symref-delete: cannot operate with deref mode")
	}
	name, old, ok, err := f.pair("old-target", false)
	if err != nil {
		return err
	}
	c := millrace.RefChangeSpec{Kind: millrace.ChangeSymrefDelete, Name: name}
	if ok {
		c.OldTarget = &old
	}
	u.add(c)
	return nil
}

// symrefVerify reads "symref-verify REF [OLD-TARGET]". Like git it demands no-deref.
func (u *updater) symrefVerify(_ context.Context, f *fields) error {
	if !u.noDeref && !u.once {
		return fatalError("symref-verify: cannot operate with deref mode")
	}
	name, old, ok, err := f.pair("old-target", false)
	if err != nil {
		return err
	}
	c := millrace.RefChangeSpec{Kind: millrace.ChangeSymrefVerify, Name: name}
	if ok {
		c.OldTarget = &old
	}
	u.add(c)
	return nil
}

// option reads "option no-deref", the only option there is.
func (u *updater) option(_ context.Context, f *fields) error {
	if rest, ok := strings.CutPrefix(f.rest, "no-deref"); ok && rest != "" && rest[0] == u.term {
		u.once = true
		return nil
	}
	return fatalf("option unknown: %s", f.rest)
}

// start answers; enter has begun the transaction.
func (u *updater) start(context.Context, *fields) error { return u.ok("start") }

// commit commits the changes and answers.
func (u *updater) commit(ctx context.Context, _ *fields) error {
	if err := u.apply(ctx); err != nil {
		return err
	}
	return u.ok("commit")
}

// abort drops the changes and answers.
func (u *updater) abort(context.Context, *fields) error {
	u.changes = nil
	return u.ok("abort")
}

// ok writes the answer that git gives to start, abort and commit.
func (u *updater) ok(command string) error {
	_, err := fmt.Fprintf(u.out, "%s: ok\n", command)
	return err
}

// apply commits the changes that were collected, in one transaction; none is not an error. A
// refusal by the server becomes a fatal error as of git. An unavailable server, or one whose answer
// was lost, keeps its own error, so that the exit code says so.
func (u *updater) apply(ctx context.Context) error {
	changes := u.changes
	u.changes = nil
	if len(changes) == 0 {
		return nil
	}
	err := u.store.commit(ctx, changes)
	var refused *millrace.Error
	if errors.As(err, &refused) && refused.Outcome == millrace.Refused && refused.Code != millrace.CodeUnavailable {
		return fatalError(refused.Message)
	}
	return err
}
