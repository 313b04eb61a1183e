# frozen_string_literal: true

require "json"

# What was measured: a table for people, and with `JSON=1` a line per comparison for programs. No bar is set for any.
class Report
  UNIT = "checks/s"
  JSON_LINES = ENV["JSON"] == "1"

  def initialize
    @lines = []
    @shown = []
  end

  # Adds a comparison, and prints its line at once where lines are asked for. The ratio is the median of the rounds' ratios,
  # which is not always the ratio of the medians.
  def add(name, ours:, peer:, peer_name:, ratio:)
    @lines << [name, whole(ours), whole(peer), format("%.3f", ratio), UNIT, peer_name]
    return unless JSON_LINES

    line = { case: name, ours: ours.round, peer: peer.round, peer_name: peer_name, unit: UNIT, ratio: ratio.round(3) }
    puts JSON.generate(line)
    $stdout.flush
  end

  # Adds a contestant's figure, for people alone. `cpu` is what a check cost the client's processor, in nanoseconds.
  def show(name, who, rate:, cpu:, ratio:)
    @shown << [name, who, whole(rate), UNIT, whole(cpu), format("%.3f", ratio)]
  end

  # Prints the tables and what is to be known of them, beside the lines on standard error.
  def finish(notes)
    out = JSON_LINES ? $stderr : $stdout
    table(out, ["case", "who", "figure", "unit", "client CPU ns", "ours to it"], @shown, [2, 4, 5])
    table(out, %w[case ours peer ratio unit peer], @lines, [1, 2, 3])
    out.puts(notes)
  end

  private

  def table(out, heads, rows, right)
    widths = [heads, *rows].transpose.map { |column| column.map(&:length).max }
    [heads, widths.map { |width| "-" * width }, *rows].each do |row|
      cells = row.each_with_index.map { |cell, i| right.include?(i) ? cell.rjust(widths[i]) : cell.ljust(widths[i]) }
      out.puts(cells.join("  ").rstrip)
    end
    out.puts
  end

  def whole(figure)
    figure.round.to_s.gsub(/(\d)(?=(\d{3})+$)/, '\1,')
  end
end
