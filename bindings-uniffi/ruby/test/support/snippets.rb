# frozen_string_literal: true

# The Ruby of a page.
module Snippets
  # Its blocks in order: those that begin with the name of a file, by that name, and the others.
  def snippets(page)
    blocks = File.read(File.join(ROOT, page)).scan(/^```ruby\n(.*?)^```$/m).flatten
    blocks.partition { |block| !block.match?(NAMED) }
          .then { |plain, named| [plain, named.to_h { |block| [block[NAMED, 1], block] }] }
  end

  NAMED = /\A# (\S+\.(?:rb|ru))$/

  # What a block says that it prints.
  def promised(block)
    block.scan(/^ *p .* # => (.*)$/).flatten
  end

  # The block, printing what `p` is given on one line.
  def printing(block)
    "def p(*values) = puts(values.map(&:inspect).join(\" \"))\n#{block}"
  end
end
