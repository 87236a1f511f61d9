package githttp

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"regexp"
	"strings"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
)

// keepsUp tells clients that open another connection for a push when the server has closed the one that they asked for
// refs on: git itself. Between the two requests a client makes the pack, for longer than idle connections are kept if
// it is large, and libgit2 then fails on the closed connection.
var keepsUp = regexp.MustCompile(`^git/\d+\.\d+\.\d`)

// agent is how this server names itself.
func (s *Server) agent() string {
	version := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '-'
		}
		return r
	}, s.o.Version)
	return "agent=millrace/" + version
}

// advertiser writes packet lines of an answer that lists something. After the first error it writes
// nothing; end returns it.
type advertiser struct {
	w *bufio.Writer
	// line is the line being made, used again for the next.
	line []byte
	err  error
}

// advertiser begins an answer of a kind: the advertisement of a service, or the result of a command.
func (q *request) advertiser(kind string) *advertiser {
	q.answer(kind)
	return &advertiser{w: bufio.NewWriterSize(q, 64<<10)}
}

// put writes one packet line, made of parts.
func (a *advertiser) put(parts ...string) {
	if a.err == nil {
		a.line = appendPkt(a.line[:0], parts...)
		_, a.err = a.w.Write(a.line)
	}
}

// mark writes a line without a payload.
func (a *advertiser) mark(pkt string) {
	if a.err == nil {
		_, a.err = a.w.WriteString(pkt)
	}
}

// end writes the flush that ends a list, and returns the first error.
func (a *advertiser) end() error {
	a.mark(flushPkt)
	if a.err == nil {
		a.err = a.w.Flush()
	}
	return a.err
}

// advertiseFetch answers what a client asks first: which refs there are, or, in version 2, only what can be asked.
func (q *request) advertiseFetch() error {
	q.s.stats.advertised.Add(1)
	if q.protocol() == "2" {
		a := q.advertiser(uploadPack + advertisement)
		a.put("# service=" + uploadPack + "\n")
		a.mark(flushPkt)
		for _, c := range []string{
			"version 2", q.s.agent(), "ls-refs=unborn", "fetch=shallow wait-for-done filter", "server-option", "object-format=sha1",
		} {
			a.put(c, "\n")
		}
		return a.end()
	}
	caps := "multi_ack thin-pack side-band side-band-64k ofs-delta shallow deepen-since deepen-not deepen-relative " +
		"no-progress include-tag multi_ack_detailed allow-tip-sha1-in-want allow-reachable-sha1-in-want no-done filter " +
		"object-format=sha1 " + q.s.agent()
	return q.advertise(uploadPack, caps, true)
}

// advertisePush answers what a client asks before a push. Git has no version 2 of that.
func (q *request) advertisePush() error {
	if q.r.ProtoMajor == 1 && !keepsUp.MatchString(q.r.UserAgent()) {
		q.w.Header().Set("Connection", "close")
	}
	if err := q.writable(); err != nil {
		return err
	}
	q.s.stats.advertised.Add(1)
	caps := "report-status report-status-v2 delete-refs side-band-64k quiet atomic ofs-delta push-options object-format=sha1 " + q.s.agent()
	return q.advertise(receivePack, caps, false)
}

// writable refuses what changes a repository that may not be.
func (q *request) writable() error {
	if q.repo.Config.State == core.RepoArchived {
		return &refusal{status: http.StatusForbidden, text: "repository is archived: it is read-only"}
	}
	return nil
}

// advertise writes all refs. To those who fetch HEAD is one of them, and tags show what they
// finally point to. The answer begins only when the refs are being read, so that a failure to read
// them still has a status of its own. A repository without refs sends one line that has the
// capabilities and no ref, as git does.
func (q *request) advertise(service, caps string, fetch bool) error {
	var a *advertiser
	begin := func(info core.RepoInfo) error {
		if fetch && info.Head != "" {
			caps += " symref=HEAD:" + info.Head
		}
		a = q.advertiser(service + advertisement)
		a.put("# service=" + service + "\n")
		a.mark(flushPkt)
		if q.protocol() == "1" {
			a.put("version 1\n")
		}
		return a.err
	}
	first := true
	put := func(id core.ObjectID, name string) {
		if first {
			a.put(id.String(), " ", name, "\x00", caps, "\n")
			first = false
			return
		}
		a.put(id.String(), " ", name, "\n")
	}
	list := q.s.o.Backend.Refs
	if q.fresh {
		list = noRefs
	}
	err := list(q.context(), q.repo, q.query(""), begin, func(r core.Ref) error {
		if r.ID.IsZero() || r.Name == "HEAD" && !fetch {
			return nil
		}
		put(r.ID, r.Name)
		if fetch && !r.Peeled.IsZero() {
			put(r.Peeled, r.Name+"^{}")
		}
		return a.err
	})
	if err != nil {
		return q.late(a != nil, err)
	}
	if first {
		put(core.ObjectID{}, "capabilities^{}")
	}
	return q.late(true, a.end())
}

// noRefs lists the refs of a repository that is not there yet.
func noRefs(_ context.Context, at Repo, _ RefQuery, begin func(core.RepoInfo) error, _ func(core.Ref) error) error {
	return begin(at.RepoInfo)
}

// query asks for what the caller may see.
func (q *request) query(prefix string) RefQuery {
	return RefQuery{Prefix: prefix, Admin: q.who.Scopes.Has(auth.RefAdmin)}
}

// late is the error of an answer that has begun: the connection is cut, so that the client does not take it for whole.
func (q *request) late(begun bool, err error) error {
	if err == nil || !begun {
		return err
	}
	if !q.gone(err) {
		q.s.log.Warn("answer to git ended early", "path", q.r.URL.Path, "err", err)
	}
	panic(http.ErrAbortHandler) // nothing else ends a connection whose answer has begun
}

// lsRefs answers the command of that name. Prefixes narrow the range that is read to what all of
// them begin with; wanted then sees that each name has one. A prefix is no more than a hint in
// git's protocol, so to send more refs is right.
func (q *request) lsRefs(args [][]byte) error {
	var symrefs, peel, unborn bool
	var prefixes []string
	for _, arg := range args {
		switch prefix, ok := bytes.CutPrefix(arg, []byte("ref-prefix ")); {
		case ok && len(prefixes) < maxPrefixes:
			prefixes = append(prefixes, string(prefix))
		case ok: // git itself sends all refs when there are too many
			prefixes = append(prefixes[:0], "")
		case string(arg) == "symrefs":
			symrefs = true
		case string(arg) == "peel":
			peel = true
		case string(arg) == "unborn":
			unborn = true
		default:
			return core.Invalid{Field: "ls-refs", Message: "has an argument that is not known"}
		}
	}
	q.s.stats.lists.Add(1)
	var a *advertiser
	begin := func(core.RepoInfo) error {
		a = q.advertiser(uploadPack + result)
		return nil
	}
	err := q.s.o.Backend.Refs(q.context(), q.repo, q.query(common(prefixes)), begin, func(r core.Ref) error {
		if !wanted(prefixes, r.Name) {
			return nil
		}
		id := r.ID.String()
		switch {
		case !r.ID.IsZero():
		case unborn && r.Name == "HEAD" && r.Target != "":
			id = "unborn"
		default:
			return nil
		}
		parts := append(make([]string, 0, 8), id, " ", r.Name)
		if (symrefs || id == "unborn") && r.Target != "" {
			parts = append(parts, " symref-target:", r.Target)
		}
		if peel && !r.Peeled.IsZero() {
			parts = append(parts, " peeled:", r.Peeled.String())
		}
		a.put(append(parts, "\n")...)
		return a.err
	})
	if err != nil {
		return q.late(a != nil, err)
	}
	return q.late(true, a.end())
}

// maxPrefixes bounds the prefixes of an ls-refs; with more all refs are sent, as git does.
const maxPrefixes = 65536

// wanted reports whether a name has one of prefixes; without any all are wanted.
func wanted(prefixes []string, name string) bool {
	if len(prefixes) == 0 {
		return true
	}
	for _, p := range prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}

// common returns what all prefixes begin with: the range that is read.
func common(prefixes []string) string {
	if len(prefixes) == 0 {
		return ""
	}
	c := prefixes[0]
	for _, p := range prefixes[1:] {
		for !strings.HasPrefix(p, c) {
			c = c[:len(c)-1]
		}
	}
	return c
}
