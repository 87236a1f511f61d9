package githttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
)

const (
	// headBytes is how much of a request is read before it is decided how git is run: enough for what a client that names
	// refs sends before them. Of a longer one it is taken that it may name some.
	headBytes = 64 << 10
	// maxArgs bounds the arguments of an ls-refs.
	maxArgs = 2 * maxPrefixes
	// maxCapabilities bounds the lines before them.
	maxCapabilities = 64
)

// fetch answers a request to git-upload-pack: in version 2 a command, before that what is wanted and had.
func (q *request) fetch() error {
	b, err := q.open(core.TooLarge{Field: "body", Limit: "git_request", Max: q.s.l.RequestBytes})
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(b, headBytes)
	version := q.protocol()
	if version == "2" {
		return q.command(in)
	}
	head, err := peek(in)
	if err != nil {
		return err
	}
	if len(head) == 0 || string(head) == flushPkt { // the probe of a client that wants to know whether it is let in
		q.answer(uploadPack + result)
		return nil
	}
	return q.pipe(version, in, names(head))
}

// peek returns what a request begins with: all of it if it is short.
func peek(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(headBytes)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	return head, nil
}

// names reports whether git must find refs to answer a request, or may have to: one that names refs, and one that deepens
// from where it is, for which git asks what its refs reach.
func names(head []byte) bool {
	return len(head) >= headBytes || bytes.Contains(head, []byte("deepen-not ")) || bytes.Contains(head, []byte("deepen-relative"))
}

// command answers a command of version 2. What names the command lies within the head. The command
// is read from the beginning again, because git needs all of it.
func (q *request) command(in *bufio.Reader) error {
	head, err := peek(in)
	if err != nil {
		return err
	}
	p := &pktReader{r: bufio.NewReaderSize(bytes.NewReader(head), headBytes)}
	kind, first, err := p.next()
	switch {
	case errors.Is(err, io.EOF) || err == nil && kind == pktFlush:
		q.answer(uploadPack + result)
		return nil
	case err != nil || kind != pktData:
		return core.Invalid{Field: "body", Message: "must be a command of git"}
	}
	switch name := string(bytes.TrimSuffix(first, []byte("\n"))); name {
	case "command=fetch":
		return q.pipe("2", in, names(head))
	case "command=ls-refs":
		args, err := readArgs(&pktReader{r: in})
		if err != nil {
			return err
		}
		return q.lsRefs(args)
	}
	return core.Invalid{Field: "command", Reason: "not_supported", Message: "must be ls-refs or fetch"}
}

// readArgs reads a command to its end and returns its arguments, without the capabilities before them.
func readArgs(p *pktReader) ([][]byte, error) {
	var args [][]byte
	bytesHeld, inArgs := 0, false
	for lines := 0; ; lines++ {
		kind, payload, err := p.next()
		switch {
		case errors.Is(err, errPkt) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return nil, core.Invalid{Field: "body", Message: "must be a command of git"}
		case err != nil:
			return nil, err
		case kind == pktFlush:
			return args, nil
		case lines > maxArgs+maxCapabilities: // all lines count, whatever they are
			return nil, core.TooLarge{Field: "ls-refs", Limit: "git_arguments", Max: maxArgs}
		case kind == pktDelim:
			inArgs = true
		case inArgs:
			if bytesHeld += len(payload); len(args) >= maxArgs || bytesHeld > 4<<20 {
				return nil, core.TooLarge{Field: "ls-refs", Limit: "git_arguments", Max: maxArgs}
			}
			args = append(args, bytes.Clone(bytes.TrimSuffix(payload, []byte("\n"))))
		}
	}
}

// pipe gives a request to git and its answer to the client. An error before git has said anything
// becomes an answer of its own. After that it can only be told within the stream, and only while no
// pack has begun; otherwise the connection is cut, so that the client does not take a part for the
// whole.
func (q *request) pipe(version string, in io.Reader, byName bool) error {
	ctx, cancel := context.WithCancel(q.context())
	defer cancel()
	if err := q.s.o.Objects.Prepare(ctx, q.repo.Place); err != nil {
		return q.refuseFetch(false, err)
	}
	f := Fetch{At: q.repo.Place, Principal: q.who.Name, Protocol: version, Names: byName, Rev: q.repo.Stats.Rev}
	if byName {
		f.Refs = q.allRefs(ctx)
	}
	q.s.stats.fetches.Add(1)
	_ = q.control.EnableFullDuplex() // git may answer before it has read all; over HTTP/2 it is so anyway
	var said fetched
	err := q.s.o.Objects.Fetch(ctx, f,
		func(w io.Writer) error {
			_, err := io.CopyBuffer(struct{ io.Writer }{w}, &counted{r: in, wire: func() int64 { return q.in.all }}, make([]byte, 32<<10))
			return err
		},
		func(r io.Reader) error {
			return q.copyOut(r, &said)
		})
	refused := edge.Is[*RefusedPack](err)
	switch whole, told := said.parse(); {
	case err == nil && said.bytes == 0: // a client that only asked what is shallow
		q.answer(uploadPack + result)
		return nil
	case err == nil, refused && told: // git has said itself why there is no more
		return nil
	case said.bytes == 0, refused && whole:
		return q.refuseFetch(said.bytes > 0, err)
	}
	return q.late(true, err)
}

// fetched is what a client has got of the answer to a fetch. It decides how an error can be told:
// not at all after a pack has begun, in git's protocol before.
type fetched struct {
	bytes int64
	head  []byte // what it begins with, at most saidHead
}

// saidHead is more than git says before the pack of most fetches. Nothing is told after more than that.
const saidHead = 16 << 10

// add counts what was sent, and keeps the beginning of it.
func (f *fetched) add(b []byte) {
	f.bytes += int64(len(b))
	f.head = append(f.head, b[:min(len(b), saidHead-len(f.head))]...)
}

// parse tells whether all that was said are whole packet lines before any pack, so that an error may follow, and whether there
// is an error among them already.
func (f *fetched) parse() (whole, told bool) {
	if f.bytes > int64(len(f.head)) {
		return false, false
	}
	p := &pktReader{r: bufio.NewReader(bytes.NewReader(f.head))}
	for {
		kind, payload, err := p.next()
		switch {
		case err != nil:
			return errors.Is(err, io.EOF), told
		case kind != pktData:
		case bytes.HasPrefix(payload, []byte("ERR ")):
			told = true
		case len(payload) > 0 && payload[0] <= bandError, string(payload) == "packfile\n":
			return false, told
		}
	}
}

// copyOut copies what git says to the client, as it comes.
func (q *request) copyOut(r io.Reader, said *fetched) error {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if said.bytes == 0 {
				q.answer(uploadPack + result)
			}
			said.add(buf[:n])
			if _, err := q.Write(buf[:n]); err != nil {
				return err
			}
			if err := q.control.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// refuseFetch tells within git's protocol why there is no answer, or no more of one that has begun, where people see it; what says
// how long to wait is told by the status.
func (q *request) refuseFetch(begun bool, err error) error {
	if q.gone(err) {
		return nil
	}
	status, text := describe(err)
	refused, ok := errors.AsType[*RefusedPack](err)
	switch {
	case ok: // what was asked for cannot be given: no commits since then, say, or no request of git
		status, text = http.StatusBadRequest, refused.Line
	case status != http.StatusInternalServerError:
		return err
	default:
		q.s.log.Error("fetch failed", "path", q.r.URL.Path, "err", err)
	}
	q.s.stats.refused(status)
	if !begun {
		q.answer(uploadPack + result)
	}
	_, _ = q.Write(appendPkt(nil, "ERR millrace: ", line(text), "\n"))
	return nil
}

// allRefs reads the refs that everybody sees.
func (q *request) allRefs(ctx context.Context) Refs {
	return func(yield func(core.Ref) error) error {
		return q.s.o.Backend.Refs(ctx, q.repo, RefQuery{}, func(core.RepoInfo) error { return nil }, yield)
	}
}
