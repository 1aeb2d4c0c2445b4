"""Layouts x machines x offers -> candidates, rejections and rescues.

``question`` is what is asked, ``search`` looks, ``verdicts`` judges, ``suggest`` answers.
"""
