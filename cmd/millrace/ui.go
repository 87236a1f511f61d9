package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/internal/server"
)

// uiCmd makes the command that signs a browser in to the web interface.
func (a *app) uiCmd() *cobra.Command {
	var web string
	var start bool
	c := &cobra.Command{
		Use:   "ui",
		Short: "Print a link that signs a browser in to the web interface",
		Long: `Ui prints the address of the web interface with a code that signs a browser in as the holder of the
token. The code is good once, for a minute, at the server that made it. The token is not in the link.

With --open the browser of this machine is started with the link, which other users of the machine can see
in the list of processes for as long as the browser takes to start.`,
		Example: `  millrace ui
  millrace ui --http db.example:7080 --token-file ./token`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), cmp.Or(a.conn.timeout, defaultTimeout))
			defer cancel()
			link, lasts, err := a.signInLink(ctx, web)
			if err != nil {
				return err
			}
			if err := a.print(map[string]string{"url": link, "expires_in": lasts}, func(w io.Writer) {
				fmt.Fprintf(w, "%s\n", link)
			}); err != nil || !start {
				return err
			}
			return openBrowser(ctx, link)
		},
	}
	a.connectionFlags(c)
	c.Flags().StringVar(&web, "http", "", "host:port of the server's REST listener; default MILLRACE_REST_URL, then port 7080 of the host of --server")
	c.Flags().BoolVar(&start, "open", false, "start the browser of this machine with the link")
	return c
}

// webAddress is where the web interface is: what was given, or port 7080 of the host of the gRPC address.
func (c *connection) webAddress(given string) (string, error) {
	if c.address == "" {
		given = cmp.Or(given, os.Getenv("MILLRACE_REST_URL"))
	}
	if given == "" {
		first, _, _ := strings.Cut(cmp.Or(c.address, os.Getenv("MILLRACE_URL"), "127.0.0.1:7081"), ",")
		host, port, err := net.SplitHostPort(strings.TrimSpace(first))
		if err != nil {
			return "", usageError{fmt.Errorf("--server %q must be host:port: %w", first, err)}
		}
		if port != "7081" {
			return "", usageError{fmt.Errorf("--http is required: the server at %s does not listen on the usual port, so that of REST is not known", first)}
		}
		return net.JoinHostPort(host, "7080"), nil
	}
	given, _, _ = strings.Cut(given, ",")
	if _, _, err := net.SplitHostPort(given); err != nil {
		return "", usageError{fmt.Errorf("--http %q must be host:port: %w", given, err)}
	}
	return given, nil
}

// signInLink asks the server for a code, and returns the link and how long it is good.
func (a *app) signInLink(ctx context.Context, given string) (link, lasts string, err error) {
	address, err := a.conn.webAddress(given)
	if err != nil {
		return "", "", err
	}
	token, err := a.conn.secret()
	if err != nil {
		return "", "", err
	}
	// As the SDK: plain text to this machine alone, unless it was asked for.
	base := "https://" + address
	if host, _, _ := net.SplitHostPort(address); a.conn.insecure || server.Loopback(host) {
		base = "http://" + address
	}
	return fetchLink(ctx, base, token)
}

// fetchLink asks the server at a base URL for a code.
func fetchLink(ctx context.Context, base, token string) (link, lasts string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/session:code", http.NoBody)
	if err != nil {
		return "", "", usageError{err}
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		return "", "", exitError{exitUnavailable, err}
	}
	defer resp.Body.Close() //nolint:errcheck // it is read to its end, or an error tells
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", "", exitError{exitUnavailable, err}
	}
	var out struct {
		Code    string
		Expires string `json:"expires_in"`
		Error   *struct{ Code, Message string }
	}
	switch err := json.Unmarshal(b, &out); {
	case err == nil && out.Error != nil && resp.StatusCode == http.StatusNotFound:
		return "", "", fmt.Errorf("the server at %s has no web interface", base)
	case err == nil && out.Error != nil:
		return "", "", fmt.Errorf("%s: %s", out.Error.Code, out.Error.Message)
	case err != nil || resp.StatusCode != http.StatusOK || out.Code == "":
		return "", "", fmt.Errorf("what answers at %s is not a Millrace server: status %d", base, resp.StatusCode)
	}
	return server.SignInLink(base, out.Code), out.Expires, nil
}

// openBrowser starts the browser of this machine.
func openBrowser(ctx context.Context, link string) error {
	program := "xdg-open"
	if runtime.GOOS == "darwin" {
		program = "open"
	}
	if err := exec.CommandContext(ctx, program, link).Run(); err != nil {
		return errors.Join(errors.New("start the browser: use the link above"), err)
	}
	return nil
}
