# The guest that proves that KVM can run guests: it takes the way of every boot
# loader and kernel, from real mode through protected mode and paging to 64 bits,
# does a little arithmetic with SSE there, leaves the sum for the host and halts.
# A KVM that only emulates part of this way fails where a kernel would.
# The host puts it at 0x7c00 and page tables (identity, 2 MiB pages) at 0x1000.
# Assemble with go generate.
	.set	result, 0x6000
	.code16
	.globl	_start
_start:
	cli
	xorw	%ax, %ax
	movw	%ax, %ds
	movw	%ax, %ss
	movw	$0x7c00, %sp
	call	count			# real mode with a stack
	lgdtl	gdt_pointer
	movl	%cr0, %eax
	orl	$1, %eax		# PE
	movl	%eax, %cr0
	ljmpl	$0x08, $protected

count:
	movw	$1000, %cx
1:	addw	$1, %bx
	loop	1b
	ret

	.code32
protected:
	movw	$0x10, %ax
	movw	%ax, %ds
	movw	%ax, %es
	movw	%ax, %ss
	movl	$0x7c00, %esp
	pushl	$0x55
	popl	%edx
	movl	%cr4, %eax
	orl	$0x220, %eax		# PAE, OSFXSR
	movl	%eax, %cr4
	movl	$0x1000, %eax
	movl	%eax, %cr3
	movl	$0xc0000080, %ecx	# EFER
	rdmsr
	orl	$0x100, %eax		# LME
	wrmsr
	movl	%cr0, %eax
	andl	$0xfffffffb, %eax	# no EM
	orl	$0x80000002, %eax	# PG, MP
	movl	%eax, %cr0
	ljmpl	$0x18, $long

	.code64
long:
	movq	$0x7c00, %rsp
	xorl	%eax, %eax
	cpuid
	movl	$7, %eax
	movd	%eax, %xmm0
	pshufd	$0, %xmm0, %xmm0
	movdqa	%xmm0, %xmm1
	movl	$999, %ecx
1:	paddd	%xmm0, %xmm1		# 7 * 1000 in the end
	loop	1b
	movd	%xmm1, %eax
	movl	%eax, result
1:	hlt
	jmp	1b

	.balign	8
gdt:
	.quad	0
	.quad	0x00cf9a000000ffff	# 0x08: 32 bit code
	.quad	0x00cf92000000ffff	# 0x10: data
	.quad	0x00af9a000000ffff	# 0x18: 64 bit code
gdt_pointer:
	.word	. - gdt - 1
	.long	gdt
