# frozen_string_literal: true

module Tidegate
  # Values that are equal where all that they hold is equal.
  module Record
    # All that it holds, by name.
    def to_h
      instance_variables.to_h { |name| [name[1..].to_sym, instance_variable_get(name)] }
    end

    def ==(other)
      other.instance_of?(self.class) && to_h == other.to_h
    end
    alias eql? ==

    def hash
      [self.class, to_h].hash
    end
  end

  # What stands for something of the native library, whose address is no value: it can neither be copied nor stored.
  module Handle
    def marshal_dump
      raise TypeError, "a #{self.class} cannot be stored; make one in each process"
    end

    def initialize_copy(_other)
      raise TypeError, "a #{self.class} cannot be copied; use the same one, in any number of threads"
    end
  end

  private_constant :Record, :Handle

  # The names of a generated enumeration's numbers.
  NAMES = lambda do |enumeration|
    enumeration.constants.to_h { |name| [enumeration.const_get(name), name.downcase] }.freeze
  end
  private_constant :NAMES
end
