package server

import "context"

// DevOptions configure StartDev. A zero field means its default.
type DevOptions struct {
	Dir        string // data directory, made if missing; required
	Durability Durability
}

// Development is a server on a free loopback port with one admin token, for tests and demonstrations.
type Development struct {
	*Running
	Token string
}

// devReserve is what such a server keeps free of the disk, in bytes: a machine runs many of them.
const devReserve = 16 << 20

// StartDev starts a server on a free loopback port with one admin token of tenant default. It keeps 16 MiB of the disk free.
func StartDev(d DevOptions) (*Development, error) {
	token := NewToken()
	o, err := Dev(Options{Dir: d.Dir, Listen: "127.0.0.1:0", Admin: off, AdminSocket: off, Durability: d.Durability, Memory: minMemory, Reserve: devReserve}, token)
	if err != nil {
		return nil, err
	}
	r, err := Start(context.Background(), o)
	if err != nil {
		return nil, err
	}
	return &Development{Running: r, Token: token}, nil
}
