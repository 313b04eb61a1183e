# frozen_string_literal: true

# Checks through the gem on a real server, beside the peers. `CASES` names the cases to run, `ROUNDS` how many rounds, `WARM_UP`
# the seconds that each contestant plays before.
#
# The client runs on one core and the server on the other, so that neither waits for the other's turn.
require_relative "peers"
require_relative "player"
require_relative "report"
require_relative "rounds"
require_relative "server"

CASES = {
  "ruby-1" => { threads: 1 },
  "ruby-16" => { threads: 16 },
  "ruby-denied-hot" => { threads: 1, denied: true },
}.freeze

NOTES = [
  "tidegate: a token bucket, judged and charged by one script, a round trip a check; a refusal is told again from memory for",
  "  as long as it must stand. One limiter for all threads.",
  "rack-attack: a fixed window by the clock, INCRBY and EXPIRE in one round trip; its counter alone, without its middleware.",
  "EVALSHA: a fixed window of one INCR, a round trip a check. These two have a connection for each thread, and let twice the",
  "  limit pass around a window's end.",
].freeze

# Shows everyone, and compares ours with the limiter that can be had and with the better script.
def compare(report, url, name, threads:, denied: false)
  whos = [Peers::OURS, Peers::ATTACK, Peers::EVALSHA, Peers::HIREDIS].select { |who| Peers.installed?(who) }
  makes = whos.to_h { |who| [who, -> { Player.new(Peers.make(who, url), threads, denied: denied) }] }
  played = Rounds.play(makes, threads)
  rates = played.transform_values { |told| told.map(&:first) }
  ours = rates[Peers::OURS]
  played.each do |who, told|
    cpu = Rounds.median(told.map(&:last))
    report.show(name, who, rate: Rounds.median(rates[who]), cpu: cpu, ratio: Rounds.ratio(ours, rates[who]))
  end
  script = [Peers::EVALSHA, Peers::HIREDIS].intersection(whos).max_by { |who| Rounds.median(rates[who]) }
  { name => ([Peers::ATTACK] & whos).first, "#{name}-evalsha" => script }.compact.each do |line, who|
    theirs = rates[who]
    report.add(line, ours: Rounds.median(ours), peer: Rounds.median(theirs), peer_name: who, ratio: Rounds.ratio(ours, theirs))
  end
end

wanted = ENV.fetch("CASES", "").split
unknown = wanted - CASES.keys
abort("there is no case #{unknown[0]}; write some of #{CASES.keys.join(" ")}") if unknown.any?
ENV.delete("TIDEGATE_URL")
Server.pin_client
report = Report.new
Server.start do |url|
  CASES.each { |name, how| compare(report, url, name, **how) if wanted.empty? || wanted.include?(name) }
end
missing = [Peers::ATTACK, Peers::HIREDIS].reject { |who| Peers.installed?(who) }
absent = missing.map { |who| "#{who} could not be had, and is not among them." }
rounds = "Each has a process, warms up for #{Rounds::WARM_UP} s, and plays #{Rounds::COUNT} rounds in turn. Ruby #{RUBY_VERSION}."
report.finish(NOTES + absent + [rounds])
