#!/bin/bash
# An ordinary user uses the tools of languages in an ordinary project: nothing of it is refused.
WHO=user; . "$(dirname "$(readlink -f "$0")")/everydaywork.sh"
everyday_tools
exit $bad
