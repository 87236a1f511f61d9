package embed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Bounds of what is read from a provider: 16 MiB in all, which is 1,024 vectors of 1,024 numbers
// with 16 characters each. If the dimension is known, an answer may have 64 bytes per number and
// answerFrame bytes for everything else.
const (
	maxAnswer   = 16 << 20
	answerFrame = 64 << 10
	numberBytes = 64
)

// mostOf returns how many bytes an answer for the given number of texts may have. A dim of 0 is not
// known.
func mostOf(texts int, dim int64) int64 {
	if dim == 0 {
		return maxAnswer
	}
	return min(maxAnswer, answerFrame+int64(texts)*dim*numberBytes)
}

// provider speaks the protocol of one kind over HTTP. It keeps no state besides its connections.
type provider struct {
	o      *Options
	client *http.Client
	url    string
	// read takes an answer apart, write makes the body of a request; the kind decides which.
	read  func(body []byte, want int) (vectors [][]float32, tokens int, err error)
	write func(batch []*call) any
}

// newProvider makes the provider of a kind. It follows no redirects and uses no proxy: texts go to
// the operator's address only.
func newProvider(o *Options) *provider {
	p := &provider{o: o}
	p.client = &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return o.Net.Dial(ctx, address)
			},
			MaxConnsPerHost: o.InFlight, MaxIdleConnsPerHost: o.InFlight, IdleConnTimeout: 90 * time.Second,
			MaxResponseHeaderBytes: 64 << 10, // how long it may all take is the context's
			Proxy:                  nil,      // the address is the operator's, whatever the environment says
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	switch o.Kind {
	case KindOllama:
		p.url, p.write, p.read = joinPath(o.URL, "/api/embed"), p.writeOllama, readOllama
	case KindOpenAI:
		path := "/v1/embeddings"
		if strings.HasSuffix(strings.TrimRight(o.URL, "/"), "/v1") {
			path = "/embeddings"
		}
		p.url, p.write, p.read = joinPath(o.URL, path), p.writeOpenAI, readOpenAI
	case KindTEI:
		p.url, p.write, p.read = joinPath(o.URL, "/embed"), writeTEI, readTEI
	}
	return p
}

func (p *provider) close() { p.client.CloseIdleConnections() }

// embed makes one request and returns the vectors in the order of the batch, and the number of
// tokens if the provider says it. dim is the dimension that the vectors must have; 0: any. Errors:
// retryable, Refused, Invalid for an answer that makes no sense, and Unavailable.
func (p *provider) embed(ctx context.Context, batch []*call, dim int64) (vectors [][]float32, tokens int, err error) {
	body, err := json.Marshal(p.write(batch))
	if err != nil {
		return nil, 0, fmt.Errorf("write a request for vectors: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return nil, 0, Unavailable{Reason: "its address is of no use"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	if p.o.Key != "" {
		req.Header.Set("Authorization", "Bearer "+p.o.Key)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, 0, connectError(ctx)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := statusError(resp); err != nil {
		return nil, 0, err
	}
	most := mostOf(len(batch), dim)
	answer, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case ctx.Err() != nil:
		return nil, 0, connectError(ctx)
	case err != nil:
		return nil, 0, Invalid{"it ends too early"}
	case int64(len(answer)) > most:
		return nil, 0, Invalid{fmt.Sprintf("it is longer than %d bytes", most)}
	}
	return p.read(answer, len(batch))
}

// connectError hides what went wrong on the way, as it would name addresses. A request that took
// too long is not tried again: its callers have waited long enough.
func connectError(ctx context.Context) error {
	if ctx.Err() != nil {
		return Unavailable{After: time.Second, Reason: "it did not answer in time"}
	}
	return retryable{error: errors.New("it cannot be reached")}
}

// statusError returns the error for a status other than 200. 429 and 5xx may pass. 400, 413 and 422
// blame the text. Anything else, such as a wrong key, needs the operator.
func statusError(resp *http.Response) error {
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return nil
	case code == http.StatusTooManyRequests || code >= 500:
		out := retryable{error: fmt.Errorf("it answers with status %d", code), partial: code >= 500}
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 && s < 3600 {
			out.after = time.Duration(s) * time.Second
		}
		return out
	case code == http.StatusBadRequest || code == http.StatusRequestEntityTooLarge || code == http.StatusUnprocessableEntity:
		return Refused{Status: code}
	case code >= 300 && code < 400:
		return Invalid{"it wants to redirect"}
	default:
		return Unavailable{After: probeEvery, Reason: fmt.Sprintf("it answers with status %d", code)}
	}
}

// ollamaRequest, openAIRequest and teiRequest are the bodies of requests, as the provider's
// documentation has them.
type ollamaRequest struct {
	Model     string   `json:"model"`
	Input     []string `json:"input"`
	Truncate  bool     `json:"truncate"`
	KeepAlive string   `json:"keep_alive"`
}

func (p *provider) writeOllama(batch []*call) any {
	return ollamaRequest{Model: p.o.Model, Input: textsOf(batch), Truncate: true, KeepAlive: "30m"}
}

func readOllama(body []byte, _ int) (vectors [][]float32, tokens int, err error) {
	var doc struct {
		Embeddings []numbers `json:"embeddings"`
		Tokens     int       `json:"prompt_eval_count"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, 0, notVectors(err)
	}
	return plainVectors(doc.Embeddings), doc.Tokens, nil
}

type openAIRequest struct {
	Model    string `json:"model"`
	Input    []any  `json:"input"` // texts, or arrays of tokens
	Encoding string `json:"encoding_format"`
}

func (p *provider) writeOpenAI(batch []*call) any {
	input := make([]any, len(batch))
	for i, k := range batch {
		if input[i] = k.text; k.tokens {
			input[i] = json.RawMessage(k.text)
		}
	}
	return openAIRequest{Model: p.o.Model, Input: input, Encoding: "float"}
}

func textsOf(batch []*call) []string {
	out := make([]string, len(batch))
	for i, k := range batch {
		out[i] = k.text
	}
	return out
}

func readOpenAI(body []byte, want int) (vectors [][]float32, tokens int, err error) {
	var doc struct {
		Data []struct {
			Index     int     `json:"index"`
			Embedding numbers `json:"embedding"`
		} `json:"data"`
		Usage struct {
			Tokens int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, 0, notVectors(err)
	}
	if len(doc.Data) != want {
		return nil, 0, Invalid{fmt.Sprintf("%d vectors for %d texts", len(doc.Data), want)}
	}
	vectors = make([][]float32, want)
	for _, d := range doc.Data {
		if d.Index < 0 || d.Index >= want || vectors[d.Index] != nil || d.Embedding == nil {
			return nil, 0, Invalid{"its vectors are not numbered from 0"}
		}
		vectors[d.Index] = d.Embedding
	}
	return vectors, doc.Usage.Tokens, nil
}

type teiRequest struct {
	Inputs    []string `json:"inputs"`
	Normalize bool     `json:"normalize"`
	Truncate  bool     `json:"truncate"`
}

func writeTEI(batch []*call) any {
	return teiRequest{Inputs: textsOf(batch), Normalize: true, Truncate: true}
}

func readTEI(body []byte, _ int) (vectors [][]float32, tokens int, err error) {
	var doc []numbers
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, 0, notVectors(err)
	}
	return plainVectors(doc), 0, nil
}

// notVectors replaces an error of the decoder, whose text may quote the answer.
func notVectors(error) error { return Invalid{"it is not JSON with vectors"} }

// plainVectors converts the rows without copying numbers.
func plainVectors(in []numbers) [][]float32 {
	out := make([][]float32, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}

// numbers is a JSON array of numbers. Unlike encoding/json it refuses null inside the array, which
// would become 0.
type numbers []float32

// UnmarshalJSON reads the array. The decoder has checked the syntax.
func (n *numbers) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if len(b) < 2 || b[0] != '[' {
		return errors.New("not an array of numbers")
	}
	out := make([]float32, 0, bytes.Count(b, []byte{','})+1)
	for item := range bytes.SplitSeq(b[1:len(b)-1], []byte{','}) {
		x, err := strconv.ParseFloat(string(bytes.TrimSpace(item)), 32)
		if err != nil {
			return errors.New("not a number that fits")
		}
		out = append(out, float32(x))
	}
	*n = out
	return nil
}
