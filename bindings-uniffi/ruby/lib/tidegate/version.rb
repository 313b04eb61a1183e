# frozen_string_literal: true

module Tidegate
  VERSION = "0.1.0"
end
