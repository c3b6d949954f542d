// SPDX-License-Identifier: Apache-2.0
/* nop: what fork+exec and fork+sh run. It does nothing. */
int main(void)
{
	return 0;
}
