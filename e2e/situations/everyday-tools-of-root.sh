#!/bin/bash
# Root uses the tools of languages in an ordinary project: nothing of it is refused.
WHO=root; . "$(dirname "$(readlink -f "$0")")/everydaywork.sh"
everyday_tools
exit $bad
