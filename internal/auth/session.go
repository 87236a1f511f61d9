package auth

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/env"
)

const (
	// SessionLasts is how long a session lasts, unless its token ends before.
	SessionLasts = 12 * time.Hour
	// keyLasts is how long a key seals new sessions, and keyOpens how long it opens what it has sealed.
	keyLasts = time.Duration(core.SessionKeyLasts) * time.Millisecond
	keyOpens = 2 * keyLasts

	// CodeLasts is how long a code signs in, once.
	CodeLasts = time.Minute
	// codesNode and codesToken bound the codes that wait, of all tokens and of one.
	codesNode  = 1000
	codesToken = 10
	// LimitCodes is the name of both.
	LimitCodes = "session_codes"

	// codeBytes and csrfBytes are random bytes, so that neither can be guessed.
	codeBytes = 32
	csrfBytes = 16
)

// SessionKey seals sessions. Its id is made of it, so that keys of several nodes need no numbers.
type SessionKey struct {
	Secret [core.SessionKeyBytes]byte
	Made   time.Time
}

// id names the key in what it has sealed. It tells nothing of the secret.
func (k *SessionKey) id() (id [8]byte) {
	sum := sha256.Sum256(append([]byte("millrace session key\x00"), k.Secret[:]...))
	copy(id[:], sum[:])
	return id
}

// SessionKeys are the keys that all nodes of a cluster share, the newest last.
type SessionKeys struct {
	// Turn counts how often all sessions were ended: what a node sealed with a key of its own before that is not opened either.
	Turn uint64
	Keys []SessionKey
}

// Rows finds the holder of a token by the hash that the table has of it.
type Rows interface {
	Lookup
	Row(hash [sha256.Size]byte, now time.Time) (Principal, bool)
}

// SessionOptions are the options of Sessions. All are required but Shared.
type SessionOptions struct {
	Tokens Rows
	Clock  env.Clock
	Rand   env.Rand
	// Shared returns the keys that this node has applied; nil: there are never any.
	Shared func() SessionKeys
	// Add has a key be added for all nodes, and returns when this node has applied it; nil with Shared.
	Add func(ctx context.Context) error
	// Node is the number of this node, which its codes name; 0: it is of no cluster, and they name none.
	Node uint64
}

// Sessions seals and opens the sessions of browsers. A session is a cookie and nothing else: it names the row of a token, and
// each request finds that row again, so a session ends with its token. It is safe for concurrent use.
type Sessions struct {
	o SessionOptions

	mu sync.Mutex // guards all below
	// own are this node's keys, the newest last, for as long as no key of the cluster is applied; turn is that of the cluster when
	// they were made.
	own  []SessionKey
	turn uint64
	// codes are those that were given out, by their hash.
	codes map[[sha256.Size]byte]code
}

// code is what signs in once.
type code struct {
	row  [sha256.Size]byte
	ends time.Time
}

// NewSessions returns sessions of a table of tokens.
func NewSessions(o SessionOptions) *Sessions {
	return &Sessions{o: o, codes: make(map[[sha256.Size]byte]code)}
}

// Session is an open session.
type Session struct {
	// CSRF is what a page must show in addition to the cookie. A page of another origin cannot read it.
	CSRF string
	// Ends is when it ends at the latest.
	Ends time.Time

	of     *Sessions
	row    [sha256.Size]byte
	issued time.Time
	key    [8]byte
}

// Begin returns a new session of a token, and its holder. The refusal of an unknown, an expired and a removed token is the same.
func (s *Sessions) Begin(token string) (*Session, Principal, bool) {
	if len(token) > MaxText {
		token = "" // it is looked up all the same, so that the answer takes as long
	}
	now := s.o.Clock.Wall()
	who, ok := s.o.Tokens.Lookup(token, now)
	return s.begin(sha256.Sum256([]byte(token)), who, ok && who.Tenant != "", now)
}

// Redeem is Begin with a code, which it uses up.
func (s *Sessions) Redeem(text string) (*Session, Principal, bool) {
	now := s.o.Clock.Wall()
	hash := sha256.Sum256([]byte(text))
	s.mu.Lock()
	c, known := s.codes[hash]
	delete(s.codes, hash)
	s.mu.Unlock()
	who, ok := s.o.Tokens.Row(c.row, now)
	return s.begin(c.row, who, ok && known && now.Before(c.ends), now)
}

// begin makes a session of a row.
func (s *Sessions) begin(row [sha256.Size]byte, who Principal, ok bool, now time.Time) (*Session, Principal, bool) {
	if !ok {
		return nil, Principal{}, false
	}
	var csrf [csrfBytes]byte
	s.o.Rand.Fill(csrf[:])
	ends := now.Add(SessionLasts)
	if !who.Expires.IsZero() && who.Expires.Before(ends) {
		ends = who.Expires
	}
	return &Session{CSRF: base64.RawURLEncoding.EncodeToString(csrf[:]), Ends: ends, of: s, row: row, issued: now}, who, true
}

// codeText is the length of what is random in a code. Behind it stands the number of the node that knows the code, if any.
var codeText = base64.RawURLEncoding.EncodedLen(codeBytes)

// MadeElsewhere returns the number of the node that has made a code, where that is another one. It goes by the text alone.
func (s *Sessions) MadeElsewhere(code string) (node uint64, elsewhere bool) {
	if len(code) <= codeText || code[codeText] != '-' {
		return 0, false
	}
	node, err := strconv.ParseUint(code[codeText+1:], 10, 64)
	return node, err == nil && node != s.o.Node
}

// Code returns a text that signs in the holder of a token once, within CodeLasts.
func (s *Sessions) Code(token string) (string, core.Fact) {
	var b [codeBytes]byte
	s.o.Rand.Fill(b[:])
	text, row, now := base64.RawURLEncoding.EncodeToString(b[:]), sha256.Sum256([]byte(token)), s.o.Clock.Wall()
	if s.o.Node != 0 {
		text += "-" + strconv.FormatUint(s.o.Node, 10)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	own := 0
	for hash, c := range s.codes {
		switch {
		case !now.Before(c.ends):
			delete(s.codes, hash)
		case c.row == row:
			own++
		}
	}
	switch {
	case own >= codesToken:
		return "", core.Exhausted{Limit: LimitCodes, Max: codesToken}
	case len(s.codes) >= codesNode:
		return "", core.Exhausted{Limit: LimitCodes, Max: codesNode}
	}
	s.codes[sha256.Sum256([]byte(text))] = code{row, now.Add(CodeLasts)}
	return text, nil
}

// The sealed form: version, id of the key, nonce, and what AES-GCM made of row, issue, end and csrf.
const (
	sealVersion = 1
	sealHead    = 1 + 8
	sealNonce   = 12
	sealBody    = sha256.Size + 8 + 8 + csrfBytes
	sealTag     = 16
)

// sealText is the length of the sealed form as text.
var sealText = base64.RawURLEncoding.EncodedLen(sealHead + sealNonce + sealBody + sealTag)

// Seal returns the session as the value of a cookie, sealed by the newest key.
func (c *Session) Seal() string {
	key := c.of.newest()
	id := key.id()
	b := append([]byte{sealVersion}, id[:]...)
	nonce := make([]byte, sealNonce)
	c.of.o.Rand.Fill(nonce)
	b = append(b, nonce...)
	csrf, err := base64.RawURLEncoding.DecodeString(c.CSRF)
	if err != nil {
		panic(err) // this package has made it
	}
	body := append([]byte(nil), c.row[:]...)
	body = binary.BigEndian.AppendUint64(body, uint64(c.issued.UnixMilli()))
	body = binary.BigEndian.AppendUint64(body, uint64(c.Ends.UnixMilli()))
	body = append(body, csrf...)
	return base64.RawURLEncoding.EncodeToString(sealer(&key).Seal(b, nonce, body, b[:sealHead]))
}

// sealer is the cipher of a key.
func sealer(k *SessionKey) cipher.AEAD {
	block, err := aes.NewCipher(k.Secret[:])
	if err != nil {
		panic(err) // of a key of another length alone
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // of a cipher with other blocks alone
	}
	return gcm
}

// Open reads the value of a cookie. It reports false for one that was not sealed here, whose session has ended, or whose token
// has.
func (s *Sessions) Open(text string) (*Session, Principal, bool) {
	if len(text) != sealText {
		return nil, Principal{}, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || b[0] != sealVersion {
		return nil, Principal{}, false
	}
	id := [8]byte(b[1:sealHead])
	key, ok := s.keyOf(id)
	if !ok {
		return nil, Principal{}, false
	}
	body, err := sealer(&key).Open(nil, b[sealHead:sealHead+sealNonce], b[sealHead+sealNonce:], b[:sealHead])
	if err != nil || len(body) != sealBody {
		return nil, Principal{}, false
	}
	rest := body[sha256.Size:]
	c := &Session{
		of: s, row: [sha256.Size]byte(body), key: id,
		issued: time.UnixMilli(int64(binary.BigEndian.Uint64(rest))), Ends: time.UnixMilli(int64(binary.BigEndian.Uint64(rest[8:]))),
		CSRF: base64.RawURLEncoding.EncodeToString(rest[16:]),
	}
	who, ok := c.live(s.o.Clock.Wall())
	return c, who, ok
}

// Stale reports whether another key seals now: the cookie had better be set again, since other nodes may not open this one.
func (c *Session) Stale() bool {
	key := c.of.newest()
	return key.id() != c.key
}

// Shows reports whether a page has shown the csrf. It takes as long for each wrong one.
func (c *Session) Shows(csrf string) bool {
	return subtle.ConstantTimeCompare([]byte(csrf), []byte(c.CSRF)) == 1
}

// Holder returns whose session it is, and whether it can be used at now.
func (c *Session) Holder(now time.Time) (Principal, bool) {
	who, ok := c.live(now)
	if ok {
		_, ok = c.of.keyOf(c.key)
	}
	return who, ok
}

// live is Holder where the key is known to open.
func (c *Session) live(now time.Time) (Principal, bool) {
	who, ok := c.of.o.Tokens.Row(c.row, now)
	return who, ok && who.Tenant != "" && now.Before(c.Ends)
}

// shared returns the keys of the cluster that still open sessions.
func (s *Sessions) shared(now time.Time) (out SessionKeys) {
	if s.o.Shared == nil {
		return out
	}
	all := s.o.Shared()
	out.Turn = all.Turn
	for _, k := range all.Keys {
		if now.Before(k.Made.Add(keyOpens)) {
			out.Keys = append(out.Keys, k)
		}
	}
	return out
}

// addWait bounds the wait for a key: where no node leads, one can still sign in.
const addWait = 2 * time.Second

// Prepare sees to it that the cluster has a key to seal with, before a session begins. A cluster whose pages are never used has none.
func (s *Sessions) Prepare(ctx context.Context) {
	if s.o.Add == nil {
		return
	}
	now := s.o.Clock.Wall()
	if all := s.shared(now).Keys; len(all) > 0 && now.Before(all[len(all)-1].Made.Add(keyLasts)) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, addWait)
	defer cancel()
	_ = s.o.Add(ctx) // without it this node has a key of its own
}

// newest returns the key that seals: the cluster's, or one of this node's own while it has applied none that outlives a session.
func (s *Sessions) newest() SessionKey {
	now := s.o.Clock.Wall()
	all := s.shared(now)
	if n := len(all.Keys); n > 0 && now.Before(all.Keys[n-1].Made.Add(keyOpens-SessionLasts)) {
		return all.Keys[n-1]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.follow(all.Turn)
	if n := len(s.own); n == 0 || !now.Before(s.own[n-1].Made.Add(keyLasts)) {
		k := SessionKey{Made: now}
		s.o.Rand.Fill(k.Secret[:])
		s.own = append(s.own[max(0, n-1):], k)
	}
	return s.own[len(s.own)-1]
}

// follow drops this node's keys once all sessions were ended. The caller holds mu.
func (s *Sessions) follow(turn uint64) {
	if turn != s.turn {
		s.own, s.turn = nil, turn
	}
}

// keyOf finds a key that opens by its id.
func (s *Sessions) keyOf(id [8]byte) (SessionKey, bool) {
	now := s.o.Clock.Wall()
	all := s.shared(now)
	s.mu.Lock()
	s.follow(all.Turn)
	keys := append(all.Keys, s.own...)
	s.mu.Unlock()
	for _, k := range keys {
		if k.id() == id && now.Before(k.Made.Add(keyOpens)) {
			return k, true
		}
	}
	return SessionKey{}, false
}

// Turn drops this node's own keys: what they have sealed is not opened any more. Codes that wait are dropped too.
func (s *Sessions) Turn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own = nil
	clear(s.codes)
}
