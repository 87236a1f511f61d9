package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/api"
	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/rest"
	"github.com/millrace/millrace/ui"
)

// labelChars bounds the text of --ui-label: it stands in the head of every page.
const labelChars = 32

// labelColour is a colour of --ui-label: a word of CSS, or # and 3 or 6 hexadecimal digits.
var labelColour = regexp.MustCompile(`^([a-z]{1,32}|#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6})$`)

// label returns the text and the colour of --ui-label.
func (o Options) label() (text, colour string) {
	text, colour, _ = strings.Cut(o.UILabel, ",")
	return strings.TrimSpace(text), strings.TrimSpace(colour)
}

// checkLabel refuses a label that no page can show.
func (o Options) checkLabel() error {
	text, colour := o.label()
	switch {
	case o.UILabel == "":
		return nil
	case text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("ui-label: %q must be a text that can be printed, such as PRODUCTION or PRODUCTION,red", o.UILabel)
	case utf8.RuneCountInString(text) > labelChars:
		return fmt.Errorf("ui-label: %q must have at most %d characters", text, labelChars)
	case strings.Contains(o.UILabel, ",") && !labelColour.MatchString(colour):
		return fmt.Errorf("ui-label: the colour %q must be a word of CSS, such as red, or # and 3 or 6 hexadecimal digits", colour)
	}
	return nil
}

// showsUI reports whether the web interface and its sessions are open.
func (o Options) showsUI() bool {
	return !slices.Contains(o.closedServices(), api.ServiceUI) && o.HTTP != off
}

// pages returns the files of the web interface; nil if it is closed.
func (r *Running) pages() fs.FS {
	if !r.o.showsUI() {
		return nil
	}
	return ui.Files()
}

// clusterID names the cluster, or a server by itself.
func (r *Running) clusterID() string { return cmp.Or(r.o.Cluster.ID, r.dir.Identity().Cluster) }

// sessionCookie is the name of the cookie. Cookies of one host are shared by all its ports, so the name says whose it is: one of
// another cluster, or of another node, must not replace it. The prefix has browsers take it over TLS alone, from this host alone.
func (r *Running) sessionCookie() string {
	sum := sha256.Sum256([]byte(r.clusterID()))
	id := hex.EncodeToString(sum[:4])
	if r.cert != nil {
		return "__Host-millrace_" + id
	}
	_, port, _ := net.SplitHostPort(r.HTTPAddress) // a listener has one
	return "millrace_" + id + "_" + port
}

// browserSessions returns what the routes of sessions need; nil if they are closed.
func (r *Running) browserSessions() *rest.Sessions {
	if !r.o.showsUI() {
		return nil
	}
	o := &r.o
	r.sessions = auth.NewSessions(auth.SessionOptions{
		Tokens: o.Tokens, Clock: o.Clock, Rand: o.Rand, Shared: r.sessionKeys,
		Add: func(ctx context.Context) error { return r.node.AddSessionKey(ctx, false) }, Node: o.Cluster.Node,
	})
	host, _, _ := net.SplitHostPort(o.HTTP) // it was checked
	text, colour := o.label()
	open := o.Services
	if len(open) == 0 {
		open = api.AllServices()
	}
	return &rest.Sessions{
		Table: r.sessions, Cookie: r.sessionCookie(), Secure: r.cert != nil,
		End: func(ctx context.Context) error { return r.node.AddSessionKey(ctx, true) },
		About: rest.About{
			Node: o.Name, Cluster: r.clusterID(), Version: o.Version, Durability: string(o.Durability),
			Insecure: r.cert == nil && !env.Loopback(host), Label: text, Colour: colour, Services: open,
		},
	}
}

// sessionKeys are the keys of sessions that this node has applied.
func (r *Running) sessionKeys() (out auth.SessionKeys) {
	keys, err := r.node.SessionKeys()
	if err != nil {
		r.o.Logger.Error("read the keys of sessions", "error", err)
		return out // sessions are refused, or sealed by a key of this node
	}
	out.Turn = keys.Turn
	for _, k := range keys.Keys {
		out.Keys = append(out.Keys, auth.SessionKey{Secret: [core.SessionKeyBytes]byte(k.Secret), Made: k.Made.Time()})
	}
	return out
}

// SignInLink returns the address of the web interface with a code that signs in the holder of a token once, within a minute;
// empty if the web interface is closed.
func (r *Running) SignInLink(token string) (string, error) {
	if r.sessions == nil || r.HTTPAddress == "" {
		return "", nil
	}
	code, fact := r.sessions.Code(token)
	if fact != nil {
		return "", fact
	}
	scheme := "http"
	if r.cert != nil {
		scheme = "https"
	}
	return SignInLink(scheme+"://"+r.HTTPAddress, code), nil
}

// SignInLink returns the address of the web interface at a base URL with a code. Browsers keep what is behind # to themselves.
func SignInLink(base, code string) string {
	return strings.TrimSuffix(base, "/") + rest.PagesPrefix + "#code=" + code
}
