package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/millrace/millrace/internal/server"
)

// maxSecret bounds a file that holds a token, in bytes. It keeps a wrong path, such as that of a
// large file, from being read as a whole.
const maxSecret = 4 << 10

// secretFlags are the two ways to give a secret on a command line: as the value of a flag, which
// other users of the machine see in the list of processes, or in a file that a second flag names.
// At most one may be used.
type secretFlags struct {
	// Name of the first flag. The second one is name followed by -file.
	name string
	// The secret itself, as given on the command line.
	value string
	// Path of the file that holds it.
	file string
}

// add adds both flags to f.
func (s *secretFlags) add(f *pflag.FlagSet, name, usage string) {
	s.name = name
	f.StringVar(&s.value, name, "", usage)
	f.StringVar(&s.file, name+"-file", "", "file with that "+name+", which keeps it out of the list of processes")
}

// given reports whether one of the flags was set.
func (s *secretFlags) given() bool { return s.value != "" || s.file != "" }

// read returns the secret, without white space around it; empty if neither flag was given. Its
// errors name the flag but never show the secret.
func (s *secretFlags) read() (string, error) {
	switch {
	case s.value != "" && s.file != "":
		return "", usageError{fmt.Errorf("--%s and --%s-file are mutually exclusive", s.name, s.name)}
	case s.value != "":
		secret, err := plainSecret(s.value)
		if err != nil {
			return "", usageError{fmt.Errorf("--%s: %w", s.name, err)}
		}
		return secret, nil
	case s.file == "":
		return "", nil
	}
	secret, err := readSecret(s.file)
	if err != nil {
		return "", usageError{fmt.Errorf("--%s-file: %w", s.name, err)}
	}
	return secret, nil
}

// readSecret reads a file that holds one token, with white space around it at most.
func readSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was read
	return secretOf(f)
}

// secretOf reads the token of an open file. The error is errNoSecret if the file is empty.
func secretOf(f *os.File) (string, error) {
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxSecret {
		return "", fmt.Errorf("%s: must be at most %d bytes", f.Name(), maxSecret)
	}
	secret, err := plainSecret(string(b))
	if err != nil {
		return "", fmt.Errorf("%s: %w", f.Name(), err)
	}
	return secret, nil
}

// plainSecret removes the white space around a secret. It refuses an empty secret with errNoSecret,
// and one with characters that a header cannot carry. The error does not show the secret.
func plainSecret(s string) (string, error) {
	secret, err := server.CleanSecret(s)
	if err == nil && secret == "" {
		return "", errNoSecret
	}
	return secret, err
}

// variableSecret reads a secret from the environment; empty if the variable is not set. A variable
// that is set and empty is refused, as it is usually the mistake of a script.
func variableSecret(name string) (string, error) {
	value, set := os.LookupEnv(name)
	if !set {
		return "", nil
	}
	secret, err := plainSecret(value)
	if err != nil {
		return "", usageError{fmt.Errorf("environment variable %s: %w", name, err)}
	}
	return secret, nil
}

// errNoSecret says that a file, flag or variable has nothing but white space.
var errNoSecret = errors.New("it holds no token")

// devToken returns the token of a development server. Without a file it is a new random one for
// each start. With a file it is the token in the file, and a new one is written to a file that is
// empty or does not exist, so the token survives restarts.
//
// The file must be a regular file and not a link, which another user could have placed there. A new
// file gets mode 0600. If other users may access the file, its mode is changed to 0600 and warn is
// called, because they may have read the token.
func devToken(file string, warn func(string)) (token string, err error) {
	if file == "" {
		return server.NewToken(), nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	// A new file is created exclusively, so that a file placed there meanwhile is not used unseen.
	// An existing one is opened without following a link and without waiting for the other end of a
	// pipe.
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		f, err = os.OpenFile(file, os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if errors.Is(err, syscall.ELOOP) {
			return "", usageError{fmt.Errorf("--token-file: %s is a symbolic link, which is not followed", file)}
		}
	}
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular():
		return "", usageError{fmt.Errorf("--token-file: %s must be a regular file", file)}
	case info.Mode().Perm()&0o077 != 0:
		if err := f.Chmod(0o600); err != nil {
			return "", fmt.Errorf("--token-file: other users may read it: %w", err)
		}
		warn(fmt.Sprintf("token file %s had mode %04o and has 0600 now: other users may know the token", file, info.Mode().Perm()))
	}
	// A file with a token is used as it is, and one that cannot be read is an error. Only an empty
	// one gets a new token.
	if token, err = secretOf(f); !errors.Is(err, errNoSecret) {
		return token, err
	}
	token = server.NewToken()
	_, err = f.WriteAt([]byte(token+"\n"), 0)
	return token, err
}
