package crush

// seed is the initial value of every hash; the pads are the inputs of a mix that has fewer inputs.
const (
	seed = 1315423911
	padX = 231232
	padY = 1232
)

// mix is the mixing step of Robert Jenkins' hash of 1997 (burtleburtle.net/bob/hash/evahash.html).
func mix(a, b, c uint32) (uint32, uint32, uint32) {
	a = (a - b - c) ^ c>>13
	b = (b - c - a) ^ a<<8
	c = (c - a - b) ^ b>>13
	a = (a - b - c) ^ c>>12
	b = (b - c - a) ^ a<<16
	c = (c - a - b) ^ b>>5
	a = (a - b - c) ^ c>>3
	b = (b - c - a) ^ a<<10
	c = (c - a - b) ^ b>>15
	return a, b, c
}

// Hash2 returns Ceph's rjenkins1 of two numbers.
func Hash2(a, b uint32) uint32 {
	h := seed ^ a ^ b
	x, y := uint32(padX), uint32(padY)
	a, b, h = mix(a, b, h)
	_, _, h = mix(x, a, h)
	_, _, h = mix(b, y, h)
	return h
}

// hash3 returns Ceph's rjenkins1 of three numbers.
func hash3(a, b, c uint32) uint32 {
	h := seed ^ a ^ b ^ c
	x, y := uint32(padX), uint32(padY)
	a, b, h = mix(a, b, h)
	c, x, h = mix(c, x, h)
	y, _, h = mix(y, a, h)
	_, _, h = mix(b, x, h)
	_, _, h = mix(y, c, h)
	return h
}
