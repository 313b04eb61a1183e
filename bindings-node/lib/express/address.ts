import { isIPv6 } from 'node:net'

/**
 * A client's address as a key: an IPv4 address as it is, an IPv6 address as the network that counts as one client.
 * Whoever has an IPv6 address has a whole network of them, so a limit by single addresses limits nobody.
 *
 * Write `ipKeyGenerator(req.ip)` in a `keyGenerator` that falls back to the address.
 *
 * @param ip an address, usually `req.ip`; what is no IPv6 address comes back as it is
 * @param ipv6Subnet how many bits are the network, 1 to 128; `false` for the address as it is
 */
export function ipKeyGenerator(ip: string, ipv6Subnet: number | false = 56): string {
  if (!ip.includes(':') || !isIPv6(ip)) return ip
  const groups = groupsOf(ip)
  const mapped = ipv4Of(groups, ip)
  if (mapped !== null) return mapped
  if (ipv6Subnet === false) return ip
  for (let at = 0; at < 8; at++) {
    const bits = Math.min(Math.max(ipv6Subnet - 16 * at, 0), 16)
    groups[at]! &= 0xffff << (16 - bits)
  }
  return `${written(groups)}/${ipv6Subnet}`
}

/** The eight groups of an IPv6 address. */
function groupsOf(ip: string): number[] {
  const zone = ip.indexOf('%')
  const [head = '', tail] = (zone < 0 ? ip : ip.slice(0, zone)).split('::')
  const before = numbers(head)
  const after = tail === undefined ? [] : numbers(tail)
  const gap = new Array<number>(8 - before.length - after.length).fill(0)
  return [...before, ...gap, ...after]
}

function numbers(text: string): number[] {
  if (text === '') return []
  return text.split(':').flatMap((part) => {
    if (!part.includes('.')) return [Number.parseInt(part, 16)]
    const [a = 0, b = 0, c = 0, d = 0] = part.split('.').map(Number)
    return [(a << 8) | b, (c << 8) | d]
  })
}

/** The IPv4 address inside of a mapped one (`::ffff:192.0.2.1`), or of `::192.0.2.1` where it is written so. */
function ipv4Of(groups: readonly number[], ip: string): string | null {
  const isMapped = groups[5] === 0xffff || (groups[5] === 0 && ip.includes('.'))
  if (!isMapped || groups.slice(0, 5).some((group) => group !== 0)) return null
  const [high, low] = [groups[6]!, groups[7]!]
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`
}

/** As RFC 5952 has it: in lower case, the longest run of zeros left out, the first of equals. */
function written(groups: readonly number[]): string {
  let [start, length] = [0, 1]
  for (let at = 0; at < 8; at++) {
    let end = at
    while (end < 8 && groups[end] === 0) end++
    if (end - at > length) [start, length] = [at, end - at]
  }
  const text = (part: readonly number[]) => part.map((group) => group.toString(16)).join(':')
  return length < 2 ? text(groups) : `${text(groups.slice(0, start))}::${text(groups.slice(start + length))}`
}
