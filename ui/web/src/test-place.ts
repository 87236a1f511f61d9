// Unit tests run without a browser: what a module asks of the address when it is loaded is answered here.
Object.assign(globalThis, { location: new URL("http://localhost/") });
